//! The SACK blocks of an arriving ACK: segments that arrived out of order, duplicates (DSACK), and the extent of reordering.

use holdover_base::Instant;
use holdover_wire::{Segment, Seq, SeqRange};

use super::Connection;
use super::ack::AckReport;

impl Connection {
    /// SACK blocks (RFC 2018 section 5), DSACK first (RFC 2883 section 5).
    pub(super) fn take_sack_blocks(&mut self, now: Instant, segment: &Segment, report: &mut AckReport) {
        let blocks = segment.options.sack.as_slice();
        if self.is_dsack(segment.ack, blocks) {
            report.dsack = true;
            self.take_dsack(blocks[0], report.prior_una);
        }
        let min_rtt = self.rtt.min_rtt();
        let high_seq = self.recovery.high_seq;
        for &block in &blocks[usize::from(report.dsack)..] {
            // A block that covers nothing outstanding is a lie or a straggler (RFC 2018 section 5: ignore it).
            if block.is_empty() || block.start.ge(block.end) || block.end.gt(self.snd.nxt) || block.end.le(self.snd.una)
            {
                continue;
            }
            let highest = self.queue.highest_sacked();
            let rack = &mut self.recovery.rack;
            let model = &mut self.model;
            self.queue.mark_sacked(block, |sent| {
                report.sacked += 1;
                report.delivered_bytes += sent.payload.len() as u32;
                if let Some(model) = model {
                    model.rate_mut().on_delivered(sent);
                }
                rack.on_delivered(now, sent.sent_at, sent.end(), sent.was_retransmitted(), min_rtt);
                if sent.was_retransmitted() {
                    return;
                }
                let rtt = now.saturating_since(sent.sent_at);
                report.rtt_by_sack.get_or_insert(rtt);
                report.rtt_by_latest_sack = Some(report.rtt_by_latest_sack.map_or(rtt, |least| least.min(rtt)));
                report.original_acked |= sent.end().le(high_seq);
                if highest.is_some_and(|highest| sent.seq.lt(highest)) {
                    report.reordered_at = Some(report.reordered_at.map_or(sent.seq, |at| at.min(sent.seq)));
                }
            });
        }
    }

    /// RFC 2883 section 5: the first block reports a duplicate if it is below the ACK, or inside the second block.
    fn is_dsack(&self, ack: Seq, blocks: &[SeqRange]) -> bool {
        match blocks {
            [first, ..] if first.start.lt(ack) => true,
            [first, second, ..] => second.covers(*first),
            _ => false,
        }
    }

    fn take_dsack(&mut self, range: SeqRange, prior_una: Seq) {
        // RFC 8985 section 7.4: a DSACK of the whole probe shows that it was not needed.
        if let Some(episode) = self.recovery.episode.if_present()
            && let Some(marker) = episode.undo_marker
            && range.end.gt(marker)
            && range.end.le(prior_una.max(self.queue.highest_sacked().unwrap_or(prior_una)))
        {
            episode.one_retransmission_was_unnecessary();
        }
        self.recovery.rack.dsack_seen = true;
        self.recovery.loss_probe.take_if(|probe| probe.retransmitted && probe.high_seq == range.end);
    }

    /// Reordering was seen: a segment arrived `highest - at` behind (Linux `tcp_check_sack_reordering`).
    pub(super) fn note_reordering(&mut self, at: Seq, highest: Seq) {
        let segments = (highest - at).div_ceil(self.snd.mss);
        if segments > self.recovery.reordering {
            self.recovery.reordering = segments.min(self.config.recovery.max_reordering);
        }
        self.recovery.reordering_seen = self.recovery.reordering_seen.saturating_add(1);
    }
}
