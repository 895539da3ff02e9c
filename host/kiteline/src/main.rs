//! The kiteline program. Everything is in the library, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    kiteline::run(std::env::args_os())
}
