//! The outside world, folders named by stage.
