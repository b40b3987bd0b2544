//! State that most connections lack most of the time: out-of-order data, an episode of loss, a limit set by the owner.
//! A host holds many idle connections, which should not pay for it.

use core::fmt;
use core::ops::Deref;
use std::collections::VecDeque;

/// A value that is on the heap while it differs from [`Absent::ABSENT`], and takes one word otherwise.
///
/// Reads need no distinction: an absent value reads as [`Absent::ABSENT`]. Writes are explicit, so that a mere reset
/// cannot allocate the value: [`Self::to_mut`] allocates it, [`Self::if_present`] does not, [`Self::clear`] frees it.
pub(crate) struct OnDemand<T>(Option<Box<T>>);

/// The value to read while none is allocated.
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

    /// The value, to read, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Gives the value back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Frees the value if it equals [`Absent::ABSENT`].
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
