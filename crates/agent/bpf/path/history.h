// What was seen of one direction of data and of its ACKs.

#pragma once

INLINE void note_stamp(struct half *half, const struct packet *packet)
{
	if (!half->first_stamp_at) {
		half->first_stamp_at = half->newest_stamp_at = packet->now;
		half->first_stamp = half->newest_stamp = packet->val;
	} else if (before(half->newest_stamp, packet->val)) {
		half->newest_stamp_at = packet->now;
		half->newest_stamp = packet->val;
	}
}

INLINE u32 shift_or(const struct half *half, u32 otherwise)
{
	u32 shift = half->window_shift == UNKNOWN_SHIFT ? otherwise : half->window_shift;

	return shift > 14 ? 14 : shift;
}

INLINE int may_be_in_window(const struct half *half, u32 seq)
{
	u32 field = half->flags & HALF_SAID ? half->said_window : 0xffff;
	u32 window = field << shift_or(half, 14);

	if (!(half->flags & HALF_ACKED))
		return 1;
	return !before(seq, half->acked) && seq - half->acked <= window;
}

// Bytes of each of several segments in one, or of the one.
INLINE u32 segment_size(u32 size, u32 len)
{
	return !size || size >= len ? len : size;
}

INLINE void note_data(struct half *half, const struct packet *packet)
{
	if (packet->flags & FIN)
		half->flags |= HALF_ENDING;
	if (packet->flags & RST && may_be_in_window(half, packet->seq))
		half->flags |= HALF_RESET;
	if (packet->stamps_at)
		note_stamp(half, packet);
	if (packet->flags & SYN && packet->window_scale == UNKNOWN_SHIFT)
		half->window_shift = 0;
	if (packet->len)
		half->flags &= ~HALF_FLUSHED;
	if (packet->flags & SYN || !packet->len)
		return;
	half->last_data_at = packet->now;
	u32 size = segment_size(packet->segment_size, packet->len);

	if (size > half->longest_segment)
		half->longest_segment = size;
	note_run(half, packet->seq, packet->seq + packet->len, size);
}

INLINE void note_said(struct half *half, const struct packet *packet)
{
	u32 end = packet->seq + seq_len(packet);
	u32 shift = packet->flags & SYN && packet->window_scale != UNKNOWN_SHIFT ? packet->window_scale : 0;

	half->said_nxt = half->flags & HALF_SAID ? later(half->said_nxt, end) : end;
	half->said_ack = packet->ack;
	half->said_window = packet->window >> (shift > 14 ? 14 : shift);
	half->said_ttl = packet->ttl;
	half->said_class = packet->traffic_class & 0xfc; // without ECN (RFC 3168)
	half->flags |= HALF_SAID;
	if (packet->stamps_at) {
		half->flags |= HALF_SAID_STAMPS;
		half->said_val = packet->val;
		half->said_ecr = packet->ecr;
	} else {
		half->flags &= ~HALF_SAID_STAMPS;
	}
}

// The next three are about the half whose receiver is the one that takes, or has sent, the packet.
INLINE int is_beyond_window(const struct half *half, const struct packet *packet)
{
	u32 field = half->flags & HALF_SAID ? half->said_window : 0xffff;

	return half->flags & HALF_ACKED && before(half->acked, packet->seq) &&
	       packet->seq - half->acked > field << shift_or(half, 14);
}

INLINE int is_before_window(const struct half *half, const struct packet *packet)
{
	return half->flags & HALF_ACKED && before(packet->seq + seq_len(packet), half->acked);
}

INLINE int opens_window(const struct half *half, const struct packet *packet)
{
	u32 segment = half->longest_segment ? half->longest_segment : 1;

	return half->flags & HALF_SAID && ((u32)half->said_window << shift_or(half, 0)) < segment &&
	       packet->window > half->said_window;
}

enum kind { ADVANCING, REPEATED, OLD, OTHER };

INLINE int note_ack(struct half *half, const struct packet *packet)
{
	if (packet->flags & SYN && half->window_shift != 0)
		half->window_shift = packet->window_scale == UNKNOWN_SHIFT ? 0 : packet->window_scale;
	if (!(packet->flags & ACK) || packet->flags & RST)
		return OTHER;
	half->flags &= ~HALF_RESET;
	if (!(half->flags & HALF_ACKED)) {
		note_said(half, packet);
		half->flags |= HALF_ACKED;
		half->acked = half->shown = packet->ack;
		return OTHER;
	}
	if (before(packet->ack, half->acked))
		return OLD;
	if (half->runs_len && before(runs_end(half) + 1, packet->ack))
		return OTHER;
	note_said(half, packet);
	if (half->sack_len | packet->sack_len) {
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++)
			half->sack[n] = packet->sack[n];
	}
	half->sack_len = packet->sack_len;
	if (packet->ack == half->acked)
		return REPEATED;
	half->bytes_acked += packet->ack - half->acked;
	half->acked = packet->ack;
	half->advanced_at = packet->now;
	return ADVANCING;
}

INLINE void show(struct half *half, u64 now, u32 ack)
{
	if (!before(half->shown, ack))
		return;
	half->shown = ack;
	struct shown *shown = &half->shown_lately[half->shown_next & (MOST_SHOWN - 1)];

	shown->at = now;
	shown->ack = ack;
	half->shown_next = (half->shown_next + 1) & (MOST_SHOWN - 1);
	if (half->shown_len < MOST_SHOWN)
		half->shown_len++;
}

#define FASTEST 250 // bytes per microsecond
#define STILL_FAST (FASTEST / 8)

INLINE u64 whole_micros(u64 nanos)
{
	u64 micros = nanos / 1000;

	return !micros ? 1 : micros > 0xffffffff ? 0xffffffff : micros;
}

// Of a fast connection: no packet may be looked at for some four milliseconds, which is no pause.
#define SELDOM (8 * MS)

INLINE void note_flight(struct half *half, const struct connection *connection, u64 now)
{
	if (!(connection->flags & TRIP_SAMPLED))
		return;
	if (half->flight_since) {
		u64 elapsed = since(now, half->flight_since);
		u64 bytes = half->bytes_acked - half->flight_from;

		if (elapsed < connection->smoothed)
			return;
		if (bytes > 0xffffffff)
			bytes = 0xffffffff;
		u64 micros = whole_micros(elapsed);

		int is_fast = bytes > (half->flags & HALF_FAST ? STILL_FAST : FASTEST) * micros;

		bytes = is_fast ? 0 : bytes * whole_micros(connection->smoothed) / micros;
		// A pause says nothing.
		if (elapsed < connection->smoothed * 4 || (half->flags & HALF_FAST && elapsed < SELDOM)) {
			half->flight_bytes = bytes > 0xffffffff ? 0xffffffff : bytes;
			half->flags = is_fast ? half->flags | HALF_FAST : half->flags & ~HALF_FAST;
		}
	}
	half->flight_since = now;
	half->flight_from = half->bytes_acked;
}

INLINE int is_held(const struct half *half)
{
	return half->flags & HALF_ACKED && before(half->shown, half->acked);
}
