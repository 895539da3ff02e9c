//! The kiteline program.
