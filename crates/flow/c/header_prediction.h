// Header prediction (the term of 4.3BSD Reno): above 2 Gbit/s nothing is held back, and nearly all packets of a flow continue the
// previous one: data that follows data, ACKs that acknowledge more. While the link's state does not change, such packets are recorded in
// one cache line without a lock and skip the slow path. `fold` adds them to the flow's state before every access to the
// flow.
//
// The rest of the flow's state, and all times, are those of the last packet on the slow path, whose timestamps are less than
// PREDICT_TICKS older: on Linux as many milliseconds. The beginnings of predicted segments and the ACKs shown to the sender are not
// recorded: until newer ones have taken the slow path, the held-back bytes may begin within a segment, and single ACKs lost with the link
// are unknown.

#pragma once

#include "decisions.h"

// After so many ticks of either timestamp a packet takes the slow path, so that round trips and rates are measured, and a slower flow is
// noticed.
#define PREDICT_TICKS 4

// The usual options, as most segments have them: two no-operations and timestamps (RFC 7323 appendix A).
#define USUAL_OPTIONS 0x0101080a
#define USUAL_OPTIONS_LEN 12
#define USUAL_OFFSET 0x80 // the data offset with these options: byte 12 of the header

// A TCP header with the usual options, as in the packet.
struct plain {
	u16 ports[2];
	u32 seq, ack;
	u16 offset_and_flags, window, checksum, urgent;
	u32 options, val, ecr;
};

// The other direction's prediction of the same place, or 0: provided by the shell, as lines are found in different ways.
INLINE struct prediction *neighbour_of(struct prediction *own, u32 number);

// In the kernel keys are aligned to 8 bytes, and a load of bytes would cost eight instructions.
INLINE u64 word_at(const u8 *bytes)
{
#ifdef __bpf__
	return *(const u64 *)bytes;
#else
	u64 word;

	__builtin_memcpy(&word, bytes, sizeof(word));
	return word;
#endif
}

INLINE u32 last_bytes(const u8 *address)
{
#ifdef __bpf__
	return *(const u32 *)(address + 12);
#else
	u32 word;

	__builtin_memcpy(&word, address + 12, sizeof(word));
	return word;
#endif
}

INLINE int is_same(const struct key *one, const struct key *other)
{
	const u8 *ours = (const u8 *)one, *theirs = (const u8 *)other;
	u64 differs = (one->local_port ^ other->local_port) | (one->remote_port ^ other->remote_port);

	UNROLL
	for (u32 n = 0; n < 2 * sizeof(one->local) / 8; n++)
		differs |= word_at(ours + 8 * n) ^ word_at(theirs + 8 * n);
	return !differs;
}

// The number of a flow's line for packets in `direction`.
INLINE u32 prediction_number(const struct key *key, int direction)
{
	u32 mixed = last_bytes(key->local) ^ last_bytes(key->remote);

	mixed ^= (u32)key->local_port << 16 | key->remote_port;
	return (mixed * 0x9e3779b1u >> (32 - PREDICTION_PLACES_BITS)) << 1 | direction;
}

INLINE u32 kind_of(u32 state)
{
	return state & PREDICT_KIND;
}

// Whether packets of this flow are predicted.
INLINE int is_active(const struct prediction *prediction, const struct key *key)
{
	return kind_of(prediction->state) >= PREDICT_DATA && is_same(&prediction->key, key);
}

// The link is up, and no cut is predicted.
INLINE int is_calm(const struct link *link)
{
	return !link->is_down && !link->is_releasing && !link->has_stall && !link->awaits_packets && !link->listens && !has_orders(link);
}

// Whether the data that an ACK acknowledges has passed. The neighbour's line, which another processor may be writing to, is read only if
// the ACK is beyond the limit that was read last.
INLINE int has_passed(struct prediction *acks, u32 number, u32 ack)
{
	if (!before(READ_ONCE(acks->limit), ack))
		return 1;
	const struct prediction *data = kind_of(acks->state) == PREDICT_ACKS ? neighbour_of(acks, number) : 0;

	if (!data || kind_of(data->state) != PREDICT_DATA || !is_same(&data->key, &acks->key))
		return 0;
	u32 next = READ_ONCE(data->next);

	if (before(next, ack))
		return 0;
	// A limit that another processor sets at this moment is lost. Then the ACK that ends a timed round trip may be predicted, and that round
	// trip is not measured. Preventing this would make each such ACK wait for the line.
	WRITE_ONCE(acks->limit, next);
	return 1;
}

// Whether timestamps continue the recorded ones without ending the prediction.
INLINE int continues_stamps(u64 noted, u64 stamps, u32 state)
{
	u32 val = BE32((u32)stamps), ecr = BE32((u32)(stamps >> 32));
	u8 val_left = (state >> 8) - 1 - val, ecr_left = (state >> 16) - 1 - ecr;

	return val - BE32((u32)noted) < PREDICT_TICKS && ecr - BE32((u32)(noted >> 32)) < PREDICT_TICKS &&
	       val_left < PREDICT_TICKS && ecr_left < PREDICT_TICKS;
}

// Whether a plain segment is as predicted; if so, it is recorded. `number` is that of the line.
//
// Packets of one direction arrive one after the other. If two processors handle some at once, a record may be lost: then the next packet
// does not match and takes the slow path, and the lost one counts as a gap.
INLINE int note_if_predicted(struct prediction *prediction, u32 number, const struct plain *tcp, u32 len, u32 segment_size, int direction)
{
	u32 state = prediction->state, seq = BE32(tcp->seq);
	u64 stamps = (u64)tcp->ecr << 32 | tcp->val;

	if (seq != prediction->next || (stamps != prediction->stamps && !continues_stamps(prediction->stamps, stamps, state)))
		return 0;
	// Loaded earlier, the values below would exceed the stack.
	BARRIER();
	u32 ack = BE32(tcp->ack);
	u64 last = ack | (u64)BE16(tcp->window) << 32;

	if (kind_of(state) == PREDICT_DATA) {
		u32 size = size_of_segments(segment_size, len);

		if (!len || prediction->last << 16 != last << 16 || size > prediction->last >> 48)
			return 0;
		if (direction == INCOMING && before(prediction->limit, seq + len))
			return 0;
		WRITE_ONCE(prediction->next, seq + len);
	} else {
		if (len || !before((u32)prediction->last, ack) || !has_passed(prediction, number, ack))
			return 0;
		WRITE_ONCE(prediction->last, last);
	}
	WRITE_ONCE(prediction->stamps, stamps);
	return 1;
}

// Folds predicted packets of one direction into the flow. Idempotent; it precedes every other access to the flow.
INLINE void fold(struct flow *flow, const struct prediction *prediction, const struct key *key, int direction)
{
	struct half acks = half_of(flow, direction), data = half_of(flow, !direction);

	if (!is_active(prediction, key))
		return;
	int is_data = kind_of(prediction->state) == PREDICT_DATA;
	u64 stamps = READ_ONCE(prediction->stamps);
	u32 newest = newest_stamp(&data, &acks);

	acks.core->last_val = BE32((u32)stamps);
	acks.core->last_ecr = BE32((u32)(stamps >> 32));
	set_newest_stamp(&data, &acks, newest);
	BARRIER();
	if (is_data && data.core->runs_len) {
		u32 next = READ_ONCE(prediction->next);

		if (!before(data.core->end, next))
			return;
		if (direction == OUTGOING)
			flow->nxt = later(flow->nxt, next);
		set_flag(&data, HALF_SHORT, is_short(next - data.acks->start, data.core->size));
		grow_end(&data, next);
		acks.core->last_nxt = later(acks.core->last_nxt, next);
	} else if (!is_data && acks.core->flags & HALF_ACKED) {
		u64 last = READ_ONCE(prediction->last);
		u32 ack = last;

		if (!before(acks.core->acked, ack))
			return;
		// The ACKs shown to the host itself are not used.
		if (direction == OUTGOING)
			forget_shown(&acks, ack);
		acks.acks->bytes_acked += ack - acks.core->acked;
		set_acked(&acks, ack);
		acks.core->last_window = last >> 32;
		set_shown(&acks, later(shown_ack(&acks), ack));
	}
}

// All packets of the flow take the slow path from now on.
INLINE void stop_prediction(struct prediction *prediction, const struct key *key)
{
	if (is_active(prediction, key))
		__sync_lock_test_and_set(&prediction->state, PREDICT_IDLE);
}

// A free line belongs to no flow until one claims it by writing its key.
INLINE void free_prediction(struct prediction *prediction, const struct key *key)
{
	if (!is_same(&prediction->key, key))
		return;
	__builtin_memset(&prediction->key, 0, sizeof(prediction->key));
	__sync_lock_test_and_set(&prediction->state, PREDICT_FREE);
}

// Sets how far ACKs, or incoming data, are predicted, and the state.
INLINE void bound_prediction(const struct flow *flow, struct prediction *prediction, u32 state, int direction)
{
	struct half acks = half_of(flow, direction), own = half_of(flow, OUTGOING);
	u32 ticks = state & ~PREDICT_KIND;

	if (kind_of(state) == PREDICT_DATA) {
		prediction->limit = own.core->acked + ((u32)own.core->last_window << shift_or(&own, 14));
	} else if (direction == INCOMING && flow->flags & TRIP_TIMED) {
		prediction->limit = flow->timed - 1;
		state = ticks | PREDICT_TIMED;
	} else {
		prediction->limit = runs_end(&acks);
		state = ticks | PREDICT_ACKS;
	}
	// Written last, at once: a processor that sees it sees all the rest.
	__sync_lock_test_and_set(&prediction->state, state);
}

// Whether the next ACK of a half needs no decision.
INLINE int is_quiet(const volatile struct rules *rules, const struct half *half, const struct link *link, u64 now)
{
	u32 busy = HALF_SHRUNK | HALF_RECORDING | HALF_CLOCKED | HALF_RESET | HALF_LIMITED | HALF_TO_FLUSH | HALF_SACK;

	return !(half->core->flags & busy) && !is_held(half) && !refreshes(rules, half, link, now);
}

// The kind of packets predicted after this one: PREDICT_DATA, PREDICT_ACKS or, for none, PREDICT_IDLE.
INLINE u32 kind_after(const struct flow *flow, const struct link *link, const volatile struct rules *rules, const struct packet *packet,
		      const struct verdict *verdict, int direction)
{
	struct half own = half_of(flow, direction), others = half_of(flow, !direction), *acks = &own, *data = &others;
	u32 known = HALF_ACKED | HALF_LAST | HALF_LAST_STAMPS;
	u32 end = packet->seq + packet->len;

	if (verdict->withhold || verdict->lower || verdict->window_changed || verdict->notice || verdict->ecr != packet->ecr)
		return PREDICT_IDLE;
	const struct half_core *last = acks->core;

	if ((last->flags & known) != known || (last->flags | data->core->flags) & HALF_ENDING || !is_quiet(rules, acks, link, packet->now))
		return PREDICT_IDLE;
	if (last->acked != packet->ack || last->last_window != packet->window || last->last_nxt != end || last->last_val != packet->val ||
	    last->last_ecr != packet->ecr)
		return PREDICT_IDLE;
	if (!packet->len)
		return verdict->advances && last->flags & HALF_FAST && last->runs_len ? PREDICT_ACKS : PREDICT_IDLE;
	if (!(data->core->flags & HALF_FAST) || !data->core->runs_len)
		return PREDICT_IDLE;
	if (direction == INCOMING && (flow->outgoing.flags & (HALF_ACKED | HALF_LAST)) != (HALF_ACKED | HALF_LAST))
		return PREDICT_IDLE;
	int is_whole = data->core->end == end && data->core->size == data->acks->longest_segment;

	return is_whole ? PREDICT_DATA : PREDICT_IDLE;
}

// The timestamps that end the prediction, as `state` has them: those of a few ticks later, or the echo that measures the round trip of
// incoming data.
INLINE u32 ends_at(const struct flow *flow, const struct packet *packet, u32 kind, int direction)
{
	u32 val = packet->val + PREDICT_TICKS, ecr = packet->ecr + PREDICT_TICKS;

	if (direction == INCOMING && kind == PREDICT_DATA && flow->flags & TRIP_STAMPED && before(flow->stamped, ecr))
		ecr = flow->stamped;
	return (val & 0xff) << 8 | (ecr & 0xff) << 16;
}

// After a packet on the slow path: begins, continues or ends the prediction of both directions. `own` is the line of its direction.
INLINE void update_predictions(struct flow *flow, const struct link *link, const volatile struct rules *rules, const struct key *key,
			       const struct packet *packet, const struct verdict *verdict, struct prediction *own,
			       struct prediction *other, int link_is_calm, int direction)
{
	int is_only_ack = (packet->flags & ~PSH) == ACK;
	// The echo of a TSval counts as a round trip only while data flows in: so the next segment takes the slow path.
	int is_awaited = direction == OUTGOING && kind_of(other->state) == PREDICT_DATA && flow->flags & TRIP_STAMPED &&
			 flow->stamped_at == packet->now;

	if (!is_only_ack || is_awaited) {
		// Another processor may have recorded packets since it was folded.
		fold(flow, other, key, !direction);
		stop_prediction(other, key);
	}
	if (!is_only_ack) {
		stop_prediction(own, key);
		return;
	}
	int may_begin = packet->is_plain && link_is_calm;
	u32 kind = may_begin ? kind_after(flow, link, rules, packet, verdict, direction) : PREDICT_IDLE;

	if (kind != PREDICT_IDLE && __sync_val_compare_and_swap(&own->state, PREDICT_FREE, PREDICT_IDLE) == PREDICT_FREE)
		own->key = *key;
	if (kind == PREDICT_IDLE) {
		stop_prediction(own, key);
	} else if (is_same(&own->key, key)) {
		stop_prediction(own, key);
		own->next = packet->seq + packet->len;
		own->last = packet->ack | (u64)packet->window << 32;
		if (kind == PREDICT_DATA)
			own->last |= (u64)half_of(flow, !direction).acks->longest_segment << 48;
		own->stamps = (u64)BE32(packet->ecr) << 32 | BE32(packet->val);
		bound_prediction(flow, own, kind | ends_at(flow, packet, kind, direction), direction);
	}
	if (is_active(other, key))
		bound_prediction(flow, other, other->state, !direction);
}
