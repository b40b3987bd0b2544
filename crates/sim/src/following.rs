//! When routers react to a link that goes down or comes back.

use holdover_base::Instant;

use crate::config::LinkDetection;

/// The changes of links that routers have not noticed yet.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    detection: LinkDetection,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The state known to routers.
    up: bool,
    /// When the known state changes.
    changes_at: Option<Instant>,
}

impl Following {
    /// All links are up initially, and known to be.
    pub(crate) fn new(detection: LinkDetection, links: usize) -> Self {
        Self { detection, links: vec![Link { up: true, changes_at: None }; links] }
    }

    /// Notes that a link has gone down or come back.
    pub(crate) fn note(&mut self, now: Instant, link: usize, up: bool) {
        let after = if up { self.detection.up_after } else { self.detection.down_after };
        let entry = &mut self.links[link];
        // A change that is reverted before its detection is not reported.
        entry.changes_at = (entry.up != up).then(|| now + after);
    }

    /// When routers notice the next change.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.links.iter().filter_map(|link| link.changes_at).min()
    }

    /// The next link whose change routers notice by `now`, and whether it is up.
    pub(crate) fn poll_change(&mut self, now: Instant) -> Option<(usize, bool)> {
        let index = self.links.iter().position(|link| link.changes_at.is_some_and(|at| at <= now))?;
        let link = &mut self.links[index];
        link.changes_at = None;
        link.up = !link.up;
        Some((index, link.up))
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;

    use super::*;

    const DETECTION: LinkDetection =
        LinkDetection { down_after: Duration::from_millis(100), up_after: Duration::from_millis(300) };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_change_is_noticed_after_its_time() {
        let mut following = Following::new(DETECTION, 2);
        following.note(at(0), 1, false);
        assert_eq!(following.deadline(), Some(at(100)));
        assert_eq!(following.poll_change(at(99)), None);
        assert_eq!(following.poll_change(at(100)), Some((1, false)));
        assert_eq!(following.poll_change(at(100)), None);
        following.note(at(1000), 1, true);
        assert_eq!(following.deadline(), Some(at(1300)));
        assert_eq!(following.poll_change(at(1300)), Some((1, true)));
        assert_eq!(following.deadline(), None);
    }

    #[test]
    fn a_change_that_is_taken_back_in_time_is_not_noticed() {
        let mut following = Following::new(DETECTION, 1);
        following.note(at(0), 0, false);
        following.note(at(99), 0, true);
        assert_eq!(following.deadline(), None);
        // A flap while the link is known to be down restarts the wait.
        following.note(at(200), 0, false);
        assert_eq!(following.poll_change(at(300)), Some((0, false)));
        following.note(at(400), 0, true);
        following.note(at(500), 0, false);
        assert_eq!(following.deadline(), None);
        following.note(at(600), 0, true);
        assert_eq!(following.deadline(), Some(at(900)));
    }
}
