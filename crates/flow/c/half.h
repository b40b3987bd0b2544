// Views of the halves of a flow, and access to members whose value depends on a flag.
//
// Every packet needs the first 128 bytes of `struct flow`, which have no room for 64-bit times and counters, nor for numbers that nearly
// always equal others. Of a time they have the low half, with a flag if its high half is that of `seen_at`; of a number that equals another
// they have a flag; and bytes are counted by sequence numbers. The functions below keep the exact values, with the rest in other lines.

#pragma once

#include "sequence.h"
#include "state.h"

struct half {
	struct flow *flow;
	struct half_core *core;
	struct half_acks *acks;
	struct half_rest *rest;
};

// The half whose ACKs go in `direction`. A function with a constant flow does not write to its halves.
INLINE struct half half_of(const struct flow *constant, int direction)
{
	struct flow *flow = (struct flow *)constant;

	if (direction == OUTGOING)
		return (struct half){ flow, &flow->outgoing, &flow->outgoing_acks, &flow->outgoing_rest };
	return (struct half){ flow, &flow->incoming, &flow->incoming_acks, &flow->incoming_rest };
}

INLINE void set_flag(const struct half *half, u32 flag, u32 is_on)
{
	half->core->flags = (half->core->flags & ~flag) | (flag & (0 - !!is_on));
}

// ---- Times. Those of the flow's era, of 2^32 ns, have the high half of `seen_at`; others have their own. ----

INLINE u32 era_of(u64 time)
{
	return time >> 32;
}

// `era` with `flag`, else `own`: without a branch, both ways of which the verifier would follow.
INLINE u32 era_or(u32 era, u32 flags, u32 flag, u32 own)
{
	return own ^ ((own ^ era) & (0 - (flags / flag & 1)));
}

// Another era begins: times of this one get their own high halves.
INLINE void leave_era(struct flow *flow)
{
	struct half_rest *out = &flow->outgoing_rest, *in = &flow->incoming_rest;
	u32 era = era_of(flow->seen_at), flags = flow->outgoing.flags;

	out->last_data_era = era_or(era, flags, HALF_DATA_ERA, out->last_data_era);
	out->newest_stamp_era = era_or(era, flags, HALF_STAMP_ERA, out->newest_stamp_era);
	flow->outgoing.flags = flags & ~(HALF_DATA_ERA | HALF_STAMP_ERA);
	flags = flow->incoming.flags;
	in->last_data_era = era_or(era, flags, HALF_DATA_ERA, in->last_data_era);
	in->newest_stamp_era = era_or(era, flags, HALF_STAMP_ERA, in->newest_stamp_era);
	flow->incoming.flags = flags & ~(HALF_DATA_ERA | HALF_STAMP_ERA);
	flow->heard_era = era_or(era, flow->flags, TRIP_HEARD_ERA, flow->heard_era);
	flow->flags &= ~TRIP_HEARD_ERA;
}

// A packet passes. To be called before anything else is noted.
INLINE void note_seen(struct flow *flow, u64 now)
{
	if (!flow->seen_at)
		flow->began_at = now;
	if (era_of(flow->seen_at) != era_of(now))
		leave_era(flow);
	flow->seen_at = now;
}

INLINE u64 heard_at(const struct flow *flow)
{
	u32 era = flow->flags & TRIP_HEARD_ERA ? era_of(flow->seen_at) : flow->heard_era;

	return (u64)era << 32 | flow->heard_at;
}

// The peer is heard now.
INLINE void set_heard(struct flow *flow)
{
	flow->heard_at = flow->seen_at;
	flow->flags |= TRIP_HEARD_ERA;
}

INLINE u64 last_data_at(const struct half *half)
{
	u32 era = half->core->flags & HALF_DATA_ERA ? era_of(half->flow->seen_at) : half->rest->last_data_era;

	return (u64)era << 32 | half->core->last_data_at;
}

// Data pass now.
INLINE void set_last_data(const struct half *half)
{
	half->core->last_data_at = half->flow->seen_at;
	half->core->flags |= HALF_DATA_ERA;
}

INLINE u64 newest_stamp_at(const struct half *half)
{
	u32 era = half->core->flags & HALF_STAMP_ERA ? era_of(half->flow->seen_at) : half->rest->newest_stamp_era;

	return (u64)era << 32 | half->core->newest_stamp_at;
}

// ---- Round trips ----

INLINE u64 smoothed(const struct flow *flow)
{
	u64 high = flow->flags & TRIP_LONG ? flow->smoothed_high : 0;

	return high << 32 | flow->smoothed;
}

INLINE void set_smoothed(struct flow *flow, u64 smoothed)
{
	u32 high = smoothed >> 32;

	flow->smoothed = smoothed;
	if (high)
		flow->smoothed_high = high;
	flow->flags = high ? flow->flags | TRIP_LONG : flow->flags & ~TRIP_LONG;
}

// ---- Numbers ----

// The highest ACK that the sender was shown.
INLINE u32 shown_ack(const struct half *half)
{
	return half->core->flags & HALF_BEHIND ? half->acks->shown : half->core->acked;
}

INLINE void set_shown(const struct half *half, u32 ack)
{
	u32 is_behind = ack != half->core->acked;

	half->acks->shown = ack;
	set_flag(half, HALF_BEHIND, is_behind);
}

// The receiver acknowledges more, and the sender is not shown it yet.
INLINE void set_acked(const struct half *half, u32 ack)
{
	if (!(half->core->flags & HALF_BEHIND)) {
		half->acks->shown = half->core->acked;
		half->core->flags |= HALF_BEHIND;
	}
	half->core->acked = ack;
}

INLINE u32 sack_len(const struct half *half)
{
	return half->core->flags & HALF_SACK ? half->rest->sack_len : 0;
}

// The newest TSval of the sender of the half's data, which sends the ACKs of the other half.
INLINE u32 newest_stamp(const struct half *half, const struct half *other)
{
	return half->core->flags & HALF_STAMP_APART ? half->rest->newest_stamp : other->core->last_val;
}

// To be called after every change of `last_val` of the other half.
INLINE void set_newest_stamp(const struct half *half, const struct half *other, u32 val)
{
	if (val != other->core->last_val) {
		half->rest->newest_stamp = val;
		half->core->flags |= HALF_STAMP_APART;
	} else if (half->core->flags & HALF_STAMP_APART) {
		half->core->flags &= ~HALF_STAMP_APART;
	}
}

// ---- Bytes: the end of the newest run counts the data that follow it. ----

INLINE u64 bytes_passed(const struct half *half)
{
	return half->rest->bytes + (u32)(half->core->end - half->rest->counted);
}

#define GIGABYTE (1u << 30)
// A run that has grown beyond a multiple of a gigabyte keeps whole segments of half of one. Of a larger window (RFC 7323 permits a gigabyte) nothing
// may be held back then.
#define LONGEST_RUN (GIGABYTE / 2)

// Moves the end of the newest run without counting.
INLINE void set_end(const struct half *half, u32 end)
{
	half->rest->bytes += (u32)(half->core->end - half->rest->counted);
	half->rest->counted = half->core->end = end;
}

// Moves the end of the newest run by as many bytes as have passed.
INLINE void grow_end(const struct half *half, u32 end)
{
	u32 boundary = end & ~(GIGABYTE - 1);

	// Once in a gigabyte, so that the run's start and `counted` stay comparable to its end. By the boundary, so that packets that are
	// folded together have the result that they would have one by one.
	if ((half->core->end ^ end) / GIGABYTE) {
		u32 len = boundary - half->acks->start;

		half->rest->bytes += (u32)(boundary - half->rest->counted);
		half->rest->counted = boundary;
		if (len > LONGEST_RUN)
			half->acks->start += (len - LONGEST_RUN) / half->core->size * half->core->size;
	}
	half->core->end = end;
}

// `len` bytes of data pass. To be called after the end has moved, if it has.
INLINE void count_bytes(const struct half *half, u32 len)
{
	if (!len)
		return;
	if (half->core->flags & HALF_COUNTED)
		half->core->flags &= ~HALF_COUNTED;
	else
		half->rest->bytes += len;
}

// ---- Ethernet headers, for packets that user space sends: stored if their check differs. ----

INLINE u8 *frame_of(struct flow *flow, int direction)
{
	return direction == OUTGOING ? flow->frame_out : flow->frame_in;
}

INLINE u32 *frame_check(struct flow *flow, int direction)
{
	return direction == OUTGOING ? &flow->frame_out_check : &flow->frame_in_check;
}

INLINE u32 frame_word(const u8 *bytes)
{
	u32 word;

	__builtin_memcpy(&word, bytes, sizeof(word));
	return word;
}

// The check of an Ethernet header, never 0. Headers that differ only in the last three bytes of one address, by which a vendor numbers its
// interfaces, have different checks. Of other pairs one in 2^32 has the same check: then the earlier header stays until the era ends.
INLINE u32 check_of(const u8 *frame, u64 now)
{
	u32 type = (u32)frame[13] << 8 | frame[12];
	u32 check = frame_word(frame) * 0x9e3779b1u + frame_word(frame + 4) + frame_word(frame + 8) * 0x85ebca6bu + type * 0xc2b2ae35u +
		    era_of(now) * 0x27d4eb2fu;

	return check ? check : 1;
}
