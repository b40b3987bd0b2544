// The history of one direction of data: its segments, its ACKs, which of these its sender was shown, and its rate.

#pragma once

#include "packet.h"
#include "segments.h"

// ---- The window, as far as its shift is known. ----

INLINE u32 shift_or(const struct half *half, u32 otherwise)
{
	u32 shift = half->core->window_shift == UNKNOWN_SHIFT ? otherwise : half->core->window_shift;

	return shift > 14 ? 14 : shift;
}

// The largest window that the receiver may have offered.
INLINE u32 largest_window(const struct half *half)
{
	u32 field = half->core->flags & HALF_LAST ? half->core->last_window : 0xffff;

	return field << shift_or(half, 14);
}

// Whether the receiver may accept a RST at `seq` (RFC 9293 section 3.10.7.4). A blind guess does not hit the window.
INLINE int may_be_in_window(const struct half *half, u32 seq)
{
	u32 window = largest_window(half);

	if (!(half->core->flags & HALF_ACKED))
		return 1;
	return !before(seq, half->core->acked) && seq - half->core->acked <= window;
}

// Whether a segment of the sender is beyond the window: the receiver takes neither its data nor its ACK.
INLINE int is_beyond_window(const struct half *half, const struct packet *packet)
{
	u32 window = largest_window(half);

	return half->core->flags & HALF_ACKED && before(half->core->acked, packet->seq) && packet->seq - half->core->acked > window;
}

// Whether all of it is before the window: the receiver answers it, and takes no ACK from it.
INLINE int is_before_window(const struct half *half, const struct packet *packet)
{
	return half->core->flags & HALF_ACKED && before(packet->seq + seq_len(packet), half->core->acked);
}

// Whether a segment of the receiver opens a window that was smaller than a segment.
INLINE int opens_window(const struct half *half, const struct packet *packet)
{
	if (!(half->core->flags & HALF_LAST) || packet->window <= half->core->last_window)
		return 0;
	u32 segment = half->acks->longest_segment ? half->acks->longest_segment : 1;

	return ((u32)half->core->last_window << shift_or(half, 0)) < segment;
}

// ---- Data ----

// A TSval of the sender. `newest` is the newest one before, and `other` the half that has its ACKs, which are noted already.
INLINE void note_stamp(const struct half *half, const struct half *other, const struct packet *packet, u32 newest)
{
	int is_first = !(half->core->flags & HALF_STAMPED);

	if (!packet->has_stamps)
		return;
	if (is_first || before(newest, packet->val)) {
		newest = packet->val;
		half->core->newest_stamp_at = packet->now;
		half->core->flags |= HALF_STAMP_ERA;
	}
	set_newest_stamp(half, other, newest);
	if (is_first) {
		half->rest->first_stamp_at = packet->now;
		half->rest->first_stamp = packet->val;
		if (packet->now)
			half->core->flags |= HALF_STAMPED;
	}
}

// A segment of the sender passes.
INLINE void note_data(const struct half *half, const struct packet *packet)
{
	if (packet->flags & FIN)
		half->core->flags |= HALF_ENDING;
	if (packet->flags & RST && may_be_in_window(half, packet->seq))
		half->core->flags |= HALF_RESET;
	// RFC 7323 section 2.2: windows are scaled only if both sides send the option.
	if (packet->flags & SYN && packet->window_scale == UNKNOWN_SHIFT)
		half->core->window_shift = 0;
	if (packet->len)
		half->core->flags &= ~(HALF_FLUSHED | HALF_ANSWERED | HALF_ANSWERED_MORE);
	if (packet->flags & SYN || !packet->len)
		return;
	set_last_data(half);
	u32 size = size_of_segments(packet->segment_size, packet->len);

	// As long as the longest packet.
	if (size > 0xffff)
		size = 0xffff;
	// No run is of longer segments than the longest one, which is in another cache line.
	if (!(half->core->runs_len && size <= half->core->size) && size > half->acks->longest_segment)
		half->acks->longest_segment = size;
	note_run(half, packet->seq, packet->seq + packet->len, size);
}

// ---- ACKs ----

// The new information in an ACK.
enum ack_kind {
	ADVANCING, // it acknowledges more than any before
	REPEATED,  // it acknowledges what the last one did
	OLD,       // it acknowledges less: it was overtaken
	OTHER,     // there is no ACK, or it is the first that was seen
};

INLINE void note_last(const struct half *half, const struct packet *packet)
{
	u32 end = packet->seq + seq_len(packet);
	// The window of a SYN-ACK is not scaled (RFC 7323 section 2.2); an ACK that repeats it is.
	u32 shift = packet->flags & SYN && packet->window_scale != UNKNOWN_SHIFT ? packet->window_scale : 0;

	half->core->last_nxt = half->core->flags & HALF_LAST ? later(half->core->last_nxt, end) : end;
	half->core->last_window = packet->window >> (shift > 14 ? 14 : shift);
	half->core->last_ttl = packet->ttl;
	half->core->last_class = packet->traffic_class & 0xfc; // without ECN (RFC 3168)
	half->core->flags |= HALF_LAST;
	if (packet->has_stamps) {
		half->core->flags |= HALF_LAST_STAMPS;
		half->core->last_val = packet->val;
		half->core->last_ecr = packet->ecr;
	} else {
		half->core->flags &= ~HALF_LAST_STAMPS;
	}
}

// A segment of the receiver passes. Returns its `enum ack_kind`.
INLINE int note_ack(const struct half *half, const struct packet *packet)
{
	if (packet->flags & SYN && half->core->window_shift != 0)
		half->core->window_shift = packet->window_scale == UNKNOWN_SHIFT ? 0 : packet->window_scale;
	if (!(packet->flags & ACK) || packet->flags & RST)
		return OTHER;
	// The receiver has not accepted the reset (RFC 5961 section 3.2).
	half->core->flags &= ~HALF_RESET;
	if (!(half->core->flags & HALF_ACKED)) {
		note_last(half, packet);
		half->core->flags |= HALF_ACKED;
		half->core->acked = packet->ack;
		half->core->flags &= ~HALF_BEHIND;
		return OTHER;
	}
	if (before(packet->ack, half->core->acked))
		return OLD;
	// It acknowledges data that did not pass here. A FIN is not part of the runs.
	if (half->core->runs_len && before(runs_end(half) + 1, packet->ack))
		return OTHER;
	note_last(half, packet);
	if (half->core->flags & HALF_SACK || packet->sack_len) {
		UNROLL
		for (int n = 0; n < MOST_BLOCKS; n++)
			half->rest->sack[n] = packet->sack[n];
		half->rest->sack_len = packet->sack_len;
		set_flag(half, HALF_SACK, packet->sack_len);
	}
	if (packet->ack == half->core->acked)
		return REPEATED;
	half->acks->bytes_acked += packet->ack - half->core->acked;
	set_acked(half, packet->ack);
	half->acks->advanced_at = packet->now;
	return ADVANCING;
}

// Of `shown_every`, in ns.
#define SHOWN_UNIT 65536ULL

// The sender is shown an ACK of `ack`. After a cut, data sent before it is acknowledged for another round trip, in ACKs that the sender
// does not receive. From the first ACK without data in between on, these share an entry, so that the entries of ACKs from before the cut
// stay.
INLINE void show(const struct half *half, u64 now, u32 ack)
{
	if (!before(shown_ack(half), ack))
		return;
	set_shown(half, ack);
	struct shown *last = &half->rest->shown_lately[(half->acks->shown_next - 1) & (MOST_SHOWN - 1)];
	int is_soon = half->acks->shown_every && half->acks->shown_len && !(half->core->flags & HALF_ANSWERED) &&
		      since(now, last->at) < half->acks->shown_every * SHOWN_UNIT;
	int shares = half->core->flags & HALF_ANSWERED_MORE || is_soon;

	FORGET(shares, half->core->acked);
	if (shares) {
		last->ack = ack;
	} else {
		struct shown *shown = &half->rest->shown_lately[half->acks->shown_next & (MOST_SHOWN - 1)];

		shown->at = now;
		shown->ack = ack;
		shown->val = half->core->last_val;
		half->acks->shown_next = (half->acks->shown_next + 1) & (MOST_SHOWN - 1);
		if (half->acks->shown_len < MOST_SHOWN)
			half->acks->shown_len++;
		// A host itself sends the ACKs of a burst together, and its ladder needs each.
		if (half->core->flags & HALF_ANSWERED && half->acks->shown_every)
			half->core->flags |= HALF_ANSWERED_MORE;
	}
	half->core->flags |= HALF_ANSWERED;
}

// Header prediction does not remember each ACK that was shown: the last one stands for all.
INLINE void forget_shown(const struct half *half, u32 ack)
{
	u64 at = half->acks->shown_len ? half->rest->shown_lately[(half->acks->shown_next - 1) & (MOST_SHOWN - 1)].at : 0;

	half->rest->shown_lately[0].at = at;
	half->rest->shown_lately[0].ack = ack;
	half->acks->shown_next = half->acks->shown_len = 1;
	half->core->flags = (half->core->flags | HALF_FORGOT) & ~HALF_ANSWERED_MORE;
}

INLINE void flush_by(const struct half *half, u64 at)
{
	half->acks->flush_at = at;
	half->core->flags |= HALF_TO_FLUSH;
}

INLINE void cancel_flush(const struct half *half)
{
	if (!(half->core->flags & HALF_TO_FLUSH))
		return;
	half->acks->flush_at = 0;
	half->core->flags &= ~HALF_TO_FLUSH;
}

// Whether the receiver has acknowledged more than the sender was shown.
INLINE int is_held(const struct half *half)
{
	return (half->core->flags & (HALF_ACKED | HALF_BEHIND)) == (HALF_ACKED | HALF_BEHIND) && before(half->acks->shown, half->core->acked);
}

// ---- Speed ----

// Bytes per microsecond: 2 Gbit/s. Lowering an ACK amid a burst costs the sending host more than the ACK itself, which shows at such
// rates; no link that comes and goes is that fast.
#define FASTEST 250
// A flow that was that fast stays so down to this: hosts pause.
#define STILL_FAST (FASTEST / 8)

// At least 1, and at most 2^32 - 1, so that its product with a number of bytes fits 64 bits.
INLINE u64 whole_micros(u64 nanos)
{
	u64 micros = nanos / 1000;

	return !micros ? 1 : micros > 0xffffffff ? 0xffffffff : micros;
}

// A fast flow may have no packet on the slow path for some 4 ms (header_prediction.h): a pause is longer.
#define SELDOM (8 * MS)

// ACKs within this part of the shortest round trip to a sender beyond a link share an entry of `shown_lately`, so that those on their way
// to it when the link breaks, half a round trip, need half of the ring.
#define PART_SHOWN 16

INLINE u16 shown_every(const struct flow *flow)
{
	u64 every = flow->least / (PART_SHOWN * SHOWN_UNIT);

	if (!(flow->flags & TRIP_BEYOND))
		return 0;
	return !every ? 1 : every > 0xffff ? 0xffff : every;
}

// Measures the bytes in flight: those acknowledged in a round trip.
INLINE void note_flight(const struct half *half, const struct flow *flow, u64 now)
{
	if (!(flow->flags & TRIP_SAMPLED))
		return;
	if (half->acks->flight_since) {
		u64 round_trip = smoothed(flow) + (flow->flags & TRIP_BEYOND ? flow->beyond : 0);
		u64 elapsed = since(now, half->acks->flight_since);

		if (elapsed < round_trip)
			return;
		u64 bytes = half->acks->bytes_acked - half->acks->flight_from;

		if (bytes > 0xffffffff)
			bytes = 0xffffffff;
		u64 micros = whole_micros(elapsed);

		int is_fast = bytes > (half->core->flags & HALF_FAST ? STILL_FAST : FASTEST) * micros;

		FORGET(is_fast, half->core->acked);
		bytes = is_fast ? 0 : bytes * whole_micros(round_trip) / micros;
		// If nothing was acknowledged for four round trips, the sender has paused: no measurement.
		if (elapsed < round_trip * 4 || (half->core->flags & HALF_FAST && elapsed < SELDOM)) {
			half->acks->flight_bytes = bytes > 0xffffffff ? 0xffffffff : bytes;
			half->core->flags = is_fast ? half->core->flags | HALF_FAST : half->core->flags & ~HALF_FAST;
		}
	}
	half->acks->flight_since = now;
	half->acks->flight_from = half->acks->bytes_acked;
	half->acks->shown_every = shown_every(flow);
}
