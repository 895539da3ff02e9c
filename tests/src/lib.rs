//! The project's test suites.
