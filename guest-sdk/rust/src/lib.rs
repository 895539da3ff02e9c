//! The Rust SDK for kiteline transforms.
