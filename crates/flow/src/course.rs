//! Courses: which packets for a mobile host a gateway diverts (`c/course.h`).

use crate::ffi;
use crate::layout::{DIVERT, DIVERT_CHOSEN, DIVERT_TCP, PASSING, RULE_DIVERTS, RULE_FITS};

/// A gateway's handling of packets for a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// Packets are forwarded as without the gateway.
    Pass,
    /// Packets are diverted.
    Divert,
    /// TCP packets and their fragments are diverted; others are forwarded.
    DivertTcp,
    /// Packets of chosen connections are diverted; others are forwarded.
    DivertChosen,
}

/// A rule's decision on a connection's packets for an absent mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionRule {
    /// They pass.
    Passes,
    /// They are diverted.
    Diverts,
}

impl Course {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Divert, Self::DivertTcp, Self::DivertChosen];

    /// Whether a packet is diverted. `rule` is the first rule that matches its connection, which decides instead of the
    /// course unless that is [`Self::Pass`]; `is_tcp` says whether it is a TCP packet or a fragment of one.
    pub fn diverts(self, rule: Option<ConnectionRule>, is_tcp: bool) -> bool {
        ffi::diverts(self.number(), rule.map_or(0, ConnectionRule::verdict), is_tcp)
    }

    /// The number for programs in the kernel.
    pub const fn number(self) -> u32 {
        match self {
            Self::Pass => PASSING,
            Self::Divert => DIVERT,
            Self::DivertTcp => DIVERT_TCP,
            Self::DivertChosen => DIVERT_CHOSEN,
        }
    }

    /// The course of a number; [`Self::Pass`] for an unknown one, as programs take it.
    pub const fn from_number(number: u32) -> Self {
        match number {
            DIVERT => Self::Divert,
            DIVERT_TCP => Self::DivertTcp,
            DIVERT_CHOSEN => Self::DivertChosen,
            _ => Self::Pass,
        }
    }
}

impl ConnectionRule {
    /// The bits for programs in the kernel.
    pub const fn verdict(self) -> u32 {
        match self {
            Self::Passes => RULE_FITS,
            Self::Diverts => RULE_FITS | RULE_DIVERTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_and_rules_decide_what_is_diverted() {
        use Course::{Divert, DivertChosen, DivertTcp, Pass};
        for is_tcp in [false, true] {
            let without_rule = Course::ALL.map(|course| course.diverts(None, is_tcp));
            assert_eq!(without_rule, [false, true, is_tcp, false]);
            assert!(!Pass.diverts(Some(ConnectionRule::Diverts), is_tcp));
            for course in [Divert, DivertTcp, DivertChosen] {
                assert!(course.diverts(Some(ConnectionRule::Diverts), is_tcp), "{course:?}");
                assert!(!course.diverts(Some(ConnectionRule::Passes), is_tcp), "{course:?}");
            }
        }
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        assert_eq!(Course::ALL.map(|course| Course::from_number(course.number())), Course::ALL);
        // A program takes a course that it does not know for none that diverts.
        assert!(Course::from_number(4) == Course::Pass && !ffi::diverts(4, 0, true));
    }
}
