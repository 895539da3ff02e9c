//! Where records enter. One file a kind of source; none of them decides where to start or what is complete.

pub mod kafka;
