//! An account of a sender's permitted retransmissions: data lost in the network, data outstanding when a timer expired or the
//! peer's window closed, and a window for each round trip in which a segment arrived out of order. A storm exceeds the account,
//! even if the streams are exact.

use holdover_base::Instant;
use holdover_tcp::{Config, Connection, Disposition, LossDetection, Reason, Transmit};
use holdover_wire::{Flags, Segment, Seq};

use crate::world::{Host, Side, World};

/// One sender's account, in bytes of sequence numbers.
#[derive(Default, Debug)]
pub(crate) struct Account {
    /// The end of what was sent.
    sent: Option<Seq>,
    /// The most bytes in one segment.
    largest: u64,
    /// The segment that the timer retransmitted last: another timeout of the same segment permits that segment alone.
    timed_out: Option<Seq>,
    /// The end of the round trip that is already accounted for.
    round_end: Option<Seq>,
    /// The same in time, while SND.UNA shows no round trips.
    held_round_end: Instant,
    /// SACK blocks have arrived since.
    hears_sacks: bool,
    window_was_closed: bool,
    /// Its owner or the peer's has used verbs, which are in effect until they are lifted.
    steered: bool,
    pub(crate) lost: u64,
    pub(crate) by_timers: u64,
    pub(crate) by_disorder: u64,
    pub(crate) again: u64,
}

#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub(crate) client: Account,
    pub(crate) server: Account,
}

impl Ledger {
    fn account(&mut self, side: Side) -> &mut Account {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub(crate) fn on_transmit(&mut self, side: Side, transmit: &Transmit, connection: &Connection) {
        self.account(side).on_transmit(transmit, connection);
    }

    /// A segment that the receiver does not accept counts as lost.
    pub(crate) fn on_arrival(&mut self, to: Side, segment: &Segment, disposition: Disposition) {
        self.account(to).hears_sacks |= segment.options.sack.iter().next().is_some();
        if !matches!(disposition, Disposition::Accepted | Disposition::DuplicateData) {
            self.account(to.other()).lost += u64::from(segment.seq_len());
        }
    }

    /// A lost segment has to be retransmitted. The ACK that was lost with it may have been the only one to report arrived data.
    pub(crate) fn on_loss(&mut self, from: Side, segment: &Segment, world: &World) {
        if let Some(connection) = &world.side(from.other()).connection {
            self.account(from.other()).on_disorder(connection);
        }
        self.account(from).lost += u64::from(segment.seq_len());
        if let Some(connection) = &world.side(from).connection
            && resends_more_than_losses(connection)
        {
            self.account(from).on_disorder(connection);
        }
    }

    /// A segment was delayed or duplicated: in either direction an ACK or data may look like a sign of loss.
    pub(crate) fn on_disorder(&mut self, world: &World) {
        for side in [Side::Client, Side::Server] {
            if let Some(connection) = &world.side(side).connection {
                self.account(side).on_disorder(connection);
            }
        }
    }

    /// After the application's and the owner's turn.
    pub(crate) fn after_turn(&mut self, now: Instant, side: Side, host: &mut Host, peer_holds_ack_point: bool) {
        if core::mem::take(&mut host.steered) {
            self.client.steered = true;
            self.server.steered = true;
        }
        let account = self.account(side);
        account.after_turn(host.connection());
        if peer_holds_ack_point {
            account.on_held_ack_point(now, host.connection());
        }
    }

    /// Panics if a side has retransmitted more than permitted: `halves` halves of the account, for segments that are cut
    /// differently and for duplicates of needless retransmissions, plus a few segments.
    pub(crate) fn assert_balanced(&self, mss: u16, halves: u64) {
        for (name, account) in [("client", &self.client), ("server", &self.server)] {
            let most = account.allowed() * halves / 2 + 8 * u64::from(mss);
            assert!(
                account.again <= most,
                "the {name} sent {} bytes again, {most} at most: {account:?}",
                account.again
            );
        }
    }
}

/// Whether a needless retransmission may cause the duplicate ACKs that begin the next one, without end: in 4.3BSD, which permits
/// fast retransmits after a timeout; if fewer than three duplicates are enough; and with Tahoe, which retransmits all
/// outstanding data, in combination with BBR, whose window stays as large as it was.
pub(crate) fn feeds_itself(config: &Config) -> bool {
    let recovery = &config.recovery;
    let is_tahoe = [recovery.with_sack, recovery.without_sack].contains(&LossDetection::Tahoe);
    !recovery.bar_after_timeout
        || recovery.dup_ack_threshold < 3
        || (is_tahoe && config.congestion.algorithm.is_model_based())
}

/// Tahoe treats duplicates as a timeout; RFC 6675 fills the window with data that may not be lost.
fn resends_more_than_losses(connection: &Connection) -> bool {
    let repairs_ahead = connection.config().recovery.repair_ahead;
    match detection(connection) {
        LossDetection::Tahoe => true,
        LossDetection::Sack => repairs_ahead,
        _ => false,
    }
}

fn detection(connection: &Connection) -> LossDetection {
    let recovery = &connection.config().recovery;
    if connection.sack_agreed() { recovery.with_sack } else { recovery.without_sack }
}

fn outstanding(connection: &Connection) -> u64 {
    u64::from(connection.snd_nxt() - connection.snd_una())
}

impl Account {
    pub(crate) fn allowed(&self) -> u64 {
        self.lost + self.by_timers + self.by_disorder
    }

    fn on_transmit(&mut self, transmit: &Transmit, connection: &Connection) {
        let Transmit { segment, reason, .. } = transmit;
        let is_probe = matches!(reason, Reason::WindowProbe | Reason::KeepAlive);
        if segment.flags.intersects(Flags::SYN | Flags::RST) || segment.seq_len() == 0 || is_probe {
            return;
        }
        let len = u64::from(segment.seq_len());
        let end = segment.seq + segment.seq_len();
        self.largest = self.largest.max(len);
        match reason {
            Reason::Timeout if self.timed_out == Some(segment.seq) && !self.steered => self.by_timers += len,
            Reason::Timeout => {
                self.timed_out = Some(segment.seq);
                self.by_timers += outstanding(connection);
            }
            Reason::Requested => self.by_timers += outstanding(connection),
            Reason::LossProbe => self.by_timers += len,
            Reason::FastRetransmit if feeds_itself(connection.config()) => {
                let one = detection(connection) == LossDetection::Reno;
                self.by_timers += if one { len } else { outstanding(connection) };
            }
            _ => {}
        }
        if self.sent.is_some_and(|sent| segment.seq.lt(sent)) {
            self.again += len;
        }
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
    }

    /// A window for each round trip.
    fn on_disorder(&mut self, connection: &Connection) {
        if self.round_end.is_none_or(|end| connection.snd_una().ge(end)) {
            self.by_disorder += outstanding(connection);
            self.round_end = Some(connection.snd_nxt());
        }
    }

    /// A congestion window for each round trip in which SACK blocks arrive, by time. While the peer's owner holds the ACK point,
    /// only SACK blocks report arrived data, three or four ranges at a time: ranges without room in the option are considered
    /// lost, and once more a round trip later.
    fn on_held_ack_point(&mut self, now: Instant, connection: &Connection) {
        if let Some(srtt) = connection.srtt()
            && now >= self.held_round_end
            && core::mem::take(&mut self.hears_sacks)
        {
            let window = u64::from(connection.cwnd()) * self.largest;
            self.by_disorder += outstanding(connection).min(window);
            self.held_round_end = now + srtt;
        }
    }

    fn after_turn(&mut self, connection: &Connection) {
        let is_closed = connection.snd_wnd() == 0 && connection.unacked() > 0;
        let closes = is_closed && !core::mem::replace(&mut self.window_was_closed, is_closed);
        if closes {
            self.by_disorder += outstanding(connection);
        }
        if self.steered {
            self.on_disorder(connection);
        }
    }
}
