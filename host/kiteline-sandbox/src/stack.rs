//! How much stack the current thread has left. A guest's stack limit above the thread's real stack would end the process
//! instead of the call (cases 63), so it is compared before guests run. Not here: the guest's own limit.

use std::fs;

use crate::{error::Error, limits::HOST_STACK_BYTES};

/// Refuses a thread whose remaining stack is smaller than a guest's limit and the host's reserve. Where the system does not
/// tell (not Linux, no `/proc`), nothing is refused.
pub(crate) fn check(guest_bytes: usize) -> Result<(), Error> {
    let need = guest_bytes + HOST_STACK_BYTES;
    match remaining() {
        Some(have) if have < need => Err(Error::Stack { have, need }),
        _ => Ok(()),
    }
}

/// Bytes between here and the lower end of the stack, none if the system does not tell.
fn remaining() -> Option<usize> {
    let marker = 0u8;
    let here = std::ptr::from_ref(&marker).addr();
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (low, high, name) = maps.lines().filter_map(mapping).find(|(low, high, _)| (*low..*high).contains(&here))?;
    if name != "[stack]" {
        // Another thread's stack: mapped as a whole, a guard page without access below it.
        return Some(here - low);
    }
    // The first thread's stack grows on use, down to the limit that the system set.
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max stack size"))?;
    match line.split_whitespace().nth(3)? {
        "unlimited" => None,
        soft => Some(here.saturating_sub(high.saturating_sub(soft.parse().ok()?))),
    }
}

/// One line of `/proc/self/maps`: first address, address behind the last one, name. Format: proc(5).
fn mapping(line: &str) -> Option<(usize, usize, &str)> {
    let mut words = line.split_whitespace();
    let (low, high) = words.next()?.split_once('-')?;
    let name = words.nth(4).unwrap_or("");
    Some((usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_with_too_little_stack_is_refused() {
        let on = |bytes: usize| {
            let run = move || check(512 << 10).map_err(|error| error.code());
            thread::Builder::new().stack_size(bytes).spawn(run).expect("a thread starts").join().expect("it ends")
        };
        assert_eq!(on(2 << 20), Ok(()));
        if cfg!(target_os = "linux") {
            assert_eq!(on(400 << 10), Err("transform.stack"));
        }
    }
}
