//! State that most connections do not have most of the time: out-of-order data, an episode of loss, a limit that the owner
//! has set. A host holds many connections that do nothing, and those should not pay for it.

use core::fmt;
use core::ops::Deref;
use std::collections::VecDeque;

/// A value that is on the heap while it says something, and takes one word while it does not.
///
/// Reading needs no distinction: in its absence it reads as [`Absent::ABSENT`]. Writing does, and is explicit, so that a
/// place that merely resets something cannot bring the value into being: [`Self::to_mut`] makes it,
/// [`Self::if_present`] does not, [`Self::clear`] gives it back.
pub(crate) struct OnDemand<T>(Option<Box<T>>);

/// What a value reads as while there is none.
pub(crate) trait Absent: Clone + 'static {
    const ABSENT: &'static Self;
}

impl<T: Clone + 'static> Absent for Vec<T> {
    const ABSENT: &'static Self = &Self::new();
}

impl<T: Clone + 'static> Absent for VecDeque<T> {
    const ABSENT: &'static Self = &Self::new();
}

impl<T: Absent> OnDemand<T> {
    pub(crate) const fn absent() -> Self {
        Self(None)
    }

    /// The value to write to, made if need be.
    #[inline]
    pub(crate) fn to_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(Self::make)
    }

    #[cold]
    fn make() -> Box<T> {
        Box::new(T::ABSENT.clone())
    }

    /// The value to write to if there is one.
    pub(crate) fn if_present(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Gives the value back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Gives the value back if it says nothing any more.
    pub(crate) fn clear_if_unset(&mut self)
    where
        T: PartialEq,
    {
        if self.0.as_deref().is_some_and(|value| value == T::ABSENT) {
            self.0 = None;
        }
    }
}

impl<T: Absent> Deref for OnDemand<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::ABSENT)
    }
}

impl<T: Absent> Default for OnDemand<T> {
    fn default() -> Self {
        Self::absent()
    }
}

impl<T: Absent> Clone for OnDemand<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Absent + PartialEq> PartialEq for OnDemand<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Absent + Eq> Eq for OnDemand<T> {}

impl<T: Absent + fmt::Debug> fmt::Debug for OnDemand<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Debug)]
    struct Limit(Option<u32>);

    impl Absent for Limit {
        const ABSENT: &'static Self = &Self(None);
    }

    #[test]
    fn only_to_mut_makes_the_value() {
        let mut limit = OnDemand::<Limit>::absent();
        assert!(limit.is_absent() && limit.if_present().is_none());
        assert_eq!(*limit, Limit(None));
        limit.to_mut().0 = Some(7);
        assert_eq!(*limit, Limit(Some(7)));
        limit.clear_if_unset();
        assert!(!limit.is_absent());
        limit.to_mut().0 = None;
        limit.clear_if_unset();
        assert!(limit.is_absent());
    }
}
