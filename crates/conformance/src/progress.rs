//! How far the measurements are.

/// An event of a measurement. Several threads report events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress<'a> {
    /// The measurements begin.
    Begun {
        /// Those that a journal has.
        done: usize,
        /// All of them.
        all: usize,
    },
    /// The one with this name begins.
    Started(&'a str),
    /// One has ended.
    Ended,
    /// One could not be made, or not be kept.
    Warning(&'a str),
    /// No more follow.
    Over,
}
