//! Frames at links with a second layer.

use holdover_base::Instant;
use holdover_wire::Unreachable;

use super::Network;
use crate::frame::Frame;
use crate::neighbour::{Admitted, Due, Message};
use crate::observer::{Dropped, Medium, Observer};

impl Network {
    /// Handles a frame that is about to enter one direction of a link with a second layer: it may have to wait for its neighbour, or be
    /// blocked. `None` if it does not enter now.
    pub(crate) fn pass_segment<O: Observer>(
        &mut self,
        now: Instant,
        hop: usize,
        frame: Box<Frame>,
        observer: &mut O,
    ) -> Option<Box<Frame>> {
        let Some(segment) = &mut self.segments[hop / 2] else { return Some(frame) };
        let mut passes = Some(frame);
        if segment.resolves
            && let Some(frame) = passes.take_if(|frame| !frame.raw)
        {
            let ipv6 = frame.is_ipv6();
            match segment.neighbour(hop, ipv6).admit(now, frame) {
                Admitted::Goes(frame) => passes = Some(frame),
                Admitted::Waits { ask, dropped } => {
                    let node = self.hops[hop].from;
                    dropped.into_iter().for_each(|frame| observer.dropped(now, Dropped::Unresolved(node), &frame));
                    if ask {
                        self.send_along(now, hop, Message::Request.frame(ipv6), observer);
                    } else {
                        self.reschedule_hop(hop);
                    }
                    return None;
                }
            }
        }
        let segment = self.segments[hop / 2].as_ref()?;
        let kept_out = passes.take_if(|frame| segment.keeps_out(frame));
        if let Some(frame) = kept_out {
            self.keep_out(now, hop, &frame, observer);
        }
        passes
    }

    /// Drops a frame because its family is blocked.
    pub(crate) fn keep_out<O: Observer>(&self, now: Instant, hop: usize, frame: &Frame, observer: &mut O) {
        if !frame.raw {
            let medium = Medium::Link(self.hops[hop].id);
            observer.dropped(now, Dropped::Lost(medium, holdover_link::DropCause::CutOff), frame);
        }
    }

    /// Handles a frame that is not a packet at the end of one direction of a link without attached kernels.
    pub(crate) fn hear_neighbour<O: Observer>(&mut self, now: Instant, hop: usize, frame: &Frame, observer: &mut O) {
        let (Some((message, ipv6)), Some(segment)) = (Message::of(frame), &mut self.segments[hop / 2]) else { return };
        let back = hop ^ 1;
        let waiting = segment.neighbour(back, ipv6).learn();
        if message == Message::Request {
            self.send_along(now, back, Message::Answer.frame(ipv6), observer);
        }
        for frame in waiting {
            self.send_along(now, back, frame, observer);
        }
        self.reschedule_hop(back);
    }

    /// Repeats due requests.
    pub(crate) fn ask_again<O: Observer>(&mut self, now: Instant, hop: usize, observer: &mut O) {
        for ipv6 in [false, true] {
            let Some(segment) = &mut self.segments[hop / 2] else { return };
            match segment.neighbour(hop, ipv6).handle_timeout(now) {
                None => {}
                Some(Due::Ask) => self.send_along(now, hop, Message::Request.frame(ipv6), observer),
                // As Linux does for queued packets (`arp_error_report`, `ndisc_error_report`).
                Some(Due::GiveUp(waiting)) => {
                    let node = self.hops[hop].from;
                    for frame in waiting {
                        self.refuse(now, Dropped::Unresolved(node), Unreachable::Host, frame, observer);
                    }
                }
            }
        }
    }

    /// Handles a loss of carrier at the sender of one direction.
    pub(crate) fn forget_neighbours<O: Observer>(&mut self, now: Instant, hop: usize, observer: &mut O) {
        let node = self.hops[hop].from;
        let Some(segment) = &mut self.segments[hop / 2] else { return };
        for ipv6 in [false, true] {
            let waiting = segment.neighbour(hop, ipv6).flush();
            waiting.iter().for_each(|frame| observer.dropped(now, Dropped::Unresolved(node), frame));
        }
    }
}
