// The decision on an ACK: it passes, is lowered, or is withheld. docs/mechanisms/wake.md and the modules `hold_back`, `ack_stall` and
// `release` of `mobility` say why.

#pragma once

#include "history.h"
#include "round_trip.h"

// ACKs are stalled a round trip with its queues, an eighth and LEAD_MARGIN before a predicted cut.
#define LEAD_MARGIN (10 * MS)

// At most this part of the window, and of the bytes in flight, is held back: the sender loses as much.
#define PART_OF_WINDOW 8

// Bytes of data in a segment over Ethernet.
#define USUAL_SEGMENT 1460

// After so long without an ACK most senders have retransmitted (Linux after 200 ms and a round trip with four times its variation); and the
// same in ticks of the host's timestamp clock (Linux: 1 kHz). With a round trip of a second, or a faster clock (tcp_usec_ts), an ACK may be
// split needlessly, and its rest is then CUT_FLUSH late.
#define LONG_SILENCE (1000 * MS)
// If ordered, duplicate ACKs are dropped for this long after the last new one. After that they pass: they report losses not repaired until
// then, and answer a sender that probes the window.
#define DROPS_DUPLICATES_FOR (1000 * MS)
#define LONG_SILENCE_TICKS 1000

// The peer's clock may be slow by 1/DRIFT_PART.
#define DRIFT_PART 5000

// A shell whose controller gives no orders about windows, duplicates and exact holding (the agent's) defines this as 0, so that its
// verifier need not check the code for them.
#ifndef FLOW_ORDERS
#define FLOW_ORDERS 1
#endif

INLINE int is_stalling(const struct link *link, const struct flow *flow, u64 now)
{
	u64 lead = link->stall_lead;

	if (link->is_down || !link->has_stall)
		return 0;
	if (!lead && flow->flags & TRIP_SAMPLED) {
		lead = smoothed(flow) > flow->latest ? smoothed(flow) : flow->latest;
		lead += lead / 8 + LEAD_MARGIN;
	}
	if (!lead)
		lead = USUAL_LEAD;
	if (lead > LONGEST_LEAD)
		lead = LONGEST_LEAD;
	return link->stall_cut_at <= now + lead && now < link->stall_until;
}

INLINE u64 since_up(const struct link *link, u64 now)
{
	return now > link->up_at ? now - link->up_at : 0;
}

// Whether echoes of timestamps from before the outage are replaced.
INLINE int refreshes(const volatile struct rules *rules, const struct half *half, const struct link *link, u64 now)
{
	return half->core->flags & HALF_REFRESH && (link->awaits_packets || (link->has_up && since_up(link, now) < rules->refresh_for));
}

// How the ACKs of a flow are treated now, as an `enum holding`.
INLINE int holding_now(const volatile struct rules *rules, const struct link *link, int stalls, u64 now)
{
	if (!rules->holds || link->expires_at <= now)
		return HOLD_NOTHING;
	if (link->is_down || stalls)
		return HOLD_ALL;
	if ((!rules->hold_segments && !(FLOW_ORDERS && link->holds)) || link->awaits_packets || (link->has_up && since_up(link, now) < rules->hold_pause))
		return HOLD_NOTHING;
	return HOLD_LAST;
}

// Whether the right edge of the window stays where it is if the ACK is lowered to `ack`. A sender that has filled a window whose edge
// moves back sends its own ACKs from the new edge, where its peer may ignore them. If that happens at both ends, the connection is
// stuck.
INLINE int keeps_the_edge(const struct half *half, const struct packet *packet, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	return !held || (half->core->window_shift != UNKNOWN_SHIFT && (held >> shift_or(half, 0)) + packet->window <= 0xffff);
}

// The first ACK that a sender gets after LONG_SILENCE is shown in two steps: one byte of it, and the rest a flush later. The sender has
// retransmitted in vain since then. An echo from before proves to it that nothing was lost (RFC 3522), as an ACK of segments that were sent
// once does (RFC 5682 section 2.1, step 3b): it takes all of them to be in flight again, and sends nothing before its loss probe, two round
// trips later and more. After ten seconds the smoothed round trip is seconds long, and BBR, whose minimum round trip has expired, begins
// PROBE_RTT with a window of four segments: the loss probe comes 5 to 10 s later (docs/notes/linux-6.18.md). An ACK of one byte of the
// retransmitted segment proves nothing.
INLINE int may_be_cut_in_two(const volatile struct rules *rules, const struct half *half, const struct link *link,
			     const struct packet *packet, u32 from)
{
	if (link->is_down || link->expires_at <= packet->now)
		return 0;
	// With other orders no controller would flush the rest.
	if (FLOW_ORDERS && link->holds != HOLDS_SEGMENTS)
		return 0;
	if (!packet->has_stamps || !half->rest->first_stamp_at || packet->flags & (SYN | FIN | RST))
		return 0;
	// SACK blocks of data that it does not acknowledge show losses by themselves. A DSACK (RFC 2883) is dropped with the lowering, and the
	// flush has no blocks.
	if (packet->sack_len > 1 || (packet->sack_len && before(packet->ack, packet->sack[0].end)))
		return 0;
	return rules->hold_segments && packet->ack - from > 1 && keeps_the_edge(half, packet, from + 1);
}

// Whether an ACK that comes in is the first to advance after LONG_SILENCE and echoes a timestamp from before it.
INLINE int ends_host_silence(const volatile struct rules *rules, const struct half *half, const struct half *other, const struct link *link,
			     const struct packet *packet, int kind, u64 was_advanced_at)
{
	u64 now = packet->now;

	if (kind != ADVANCING || !was_advanced_at || now < was_advanced_at + LONG_SILENCE)
		return 0;
	return refreshes(rules, half, link, now) ? !before(half->rest->refresh_stale, packet->ecr)
						 : !before(newest_stamp(half, other), packet->ecr + LONG_SILENCE_TICKS);
}

// Whether an ACK that goes out is the first after a retransmission that ended LONG_SILENCE, and acknowledges more than that segment.
INLINE int ends_peer_silence(const struct half *half, const struct packet *packet, int kind)
{
	return half->core->flags & HALF_RESUMED && (kind == ADVANCING || kind == REPEATED) &&
	       packet->ack - half->rest->resumed_from > half->acks->longest_segment;
}

// Data come in. A timeout makes the peer retransmit from its SND.UNA (RFC 6298 section 5.4): a retransmission that is the first segment
// after LONG_SILENCE shows which of the host's ACKs the peer has not received.
INLINE void note_resumption(const struct half *half, const struct half *other, const struct packet *packet)
{
	if (!packet->len || packet->flags & (SYN | RST) || !(half->core->flags & HALF_ACKED))
		return;
	u64 last_at = last_data_at(half);

	if (!last_at || packet->now < last_at + LONG_SILENCE)
		return;
	// New data after an idle time and old duplicates are not retransmissions of this kind.
	if (!half->core->runs_len || !before(packet->seq, runs_end(half)) || !packet->has_stamps || !half->rest->first_stamp_at ||
	    !before(newest_stamp(half, other), packet->val))
		return;
	u32 shown = shown_ack(half);

	if (half->core->window_shift == UNKNOWN_SHIFT || before(shown, packet->seq) || shown - packet->seq > largest_window(half))
		return;
	half->rest->resumed_from = packet->seq;
	half->core->flags |= HALF_RESUMED;
}

// Whether the link has orders for incoming ACKs.
INLINE int has_orders(const struct link *link)
{
	return link->holds || link->limits_window || link->drops_duplicates;
}

// How much of an ACK the sender is shown while the link is up. Returns 0 for all of it. `was_acked` is the number of the previous ACK.
INLINE int hold_back(const volatile struct rules *rules, const struct link *link, const struct half *half, const struct packet *packet,
		     int kind, u32 was_acked, int direction, u32 *limit)
{
	u32 holds = FLOW_ORDERS ? link->holds : HOLDS_SEGMENTS;

	// Orders to hold apply to incoming ACKs; no controller would flush outgoing ones.
	if (direction == OUTGOING && holds != HOLDS_SEGMENTS)
		return 0;

	if (kind != ADVANCING || packet->sack_len || packet->flags & (SYN | FIN | RST))
		return 0;
	if (half->core->flags & HALF_ENDING || half->acks->bytes_acked < rules->hold_after_bytes)
		return 0;
	if (half->core->flags & HALF_HOLD_FROM) {
		if (half->acks->bytes_acked < half->rest->hold_from)
			return 0;
		half->core->flags &= ~HALF_HOLD_FROM;
	}
	if (holds == HOLDS_BYTES) {
		*limit = packet->ack - link->held_bytes;
		return keeps_the_edge(half, packet, *limit);
	}
	if (holds == HOLDS_NEWEST) {
		*limit = was_acked;
		return half->core->runs_len && before(packet->ack, runs_end(half)) && keeps_the_edge(half, packet, was_acked);
	}
	if (holds == HOLDS_NOTHING || !rules->hold_segments)
		return 0;
	if (!before_last(half, half->core->acked, rules->hold_segments, limit))
		return 0;
	u32 held = saturating_since(packet->ack, *limit);
	u32 window = (u32)packet->window << shift_or(half, 0);

	if (half->acks->flight_bytes < window)
		window = half->acks->flight_bytes;
	return held <= window / PART_OF_WINDOW && keeps_the_edge(half, packet, *limit);
}

// Whether packets came in since link-up: data, or, for outgoing data, ACKs.
INLINE int flows_since_up(const struct half *half, const struct link *link, int direction)
{
	u64 last = direction == OUTGOING ? last_data_at(half) : half->acks->advanced_at;

	return link->has_up && last && last >= link->up_at;
}

// Lowers the ACK, and moves the window up by as much.
INLINE void lower(const struct half *half, const struct packet *packet, struct verdict *verdict, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	if (!held)
		return;
	verdict->lower = 1;
	verdict->ack = ack;
	if (half->core->window_shift != UNKNOWN_SHIFT) {
		u32 units = held >> shift_or(half, 0);
		u32 window = packet->window + (units > 0xffff ? 0xffff : units);

		verdict->window = window > 0xffff ? 0xffff : window;
		verdict->window_changed = verdict->window != packet->window;
	}
}

// Shrinks the window to two of the sender's segments, for a stall.
INLINE void shrink_window(const struct half *half, const struct packet *packet, struct verdict *verdict)
{
	u32 shift = shift_or(half, 0);

	if (!half->acks->longest_segment)
		return;
	// A longer packet consists of several segments.
	u32 segment = half->acks->longest_segment < USUAL_SEGMENT ? half->acks->longest_segment : USUAL_SEGMENT;
	u32 units = (2 * segment + (1u << shift) - 1) >> shift;

	if (units < verdict->window) {
		verdict->shrink = 1;
		verdict->window = units;
		verdict->window_changed = verdict->window != packet->window;
	}
}

// Limits the window that the sender is shown, by order of the flow or of the link. The window of a SYN is not scaled, and that of a RST
// has no meaning.
INLINE void limit_window(const struct half *half, const struct link *link, const struct packet *packet, struct verdict *verdict,
			 int direction)
{
	int by_link = direction == INCOMING && link->limits_window, by_flow = !!(half->core->flags & HALF_LIMITED);
	u32 most = by_link ? link->most_window : half->rest->most_window;

	if (by_link && by_flow && half->rest->most_window < most)
		most = half->rest->most_window;
	if (!FLOW_ORDERS || (!by_link && !by_flow) || packet->flags & (SYN | RST) || link->expires_at <= packet->now)
		return;
	// The window scale may be unknown; a window of zero needs none.
	if (most && half->core->window_shift == UNKNOWN_SHIFT)
		return;
	u32 units = most >> shift_or(half, 0);

	if (most && !units)
		units = 1;
	if (units < verdict->window) {
		verdict->limit = 1;
		verdict->window = units;
		verdict->window_changed = verdict->window != packet->window;
	}
}

// Whether the sender of data is shown a window of zero by order.
INLINE int is_shut(const struct half *half, const struct link *link, int data_direction)
{
	int by_link = data_direction == OUTGOING && link->limits_window && !link->most_window;

	return by_link || (half->core->flags & HALF_LIMITED && !half->rest->most_window);
}

// Whether a segment asks for a window that is shut by order: nothing below what its sender was shown, as Linux has it; one byte; or data
// that have passed before (with data outstanding, Linux's retransmissions are its probes).
INLINE int is_window_probe(const struct flow *flow, const struct link *link, const struct packet *packet, int direction)
{
	struct half acks = half_of(flow, !direction), *half = &acks;

	if (!FLOW_ORDERS || !is_shut(half, link, direction) || link->expires_at <= packet->now || packet->flags & (SYN | FIN | RST))
		return 0;
	if (!(half->core->flags & HALF_ACKED) || !(half->core->flags & HALF_LAST))
		return 0;
	if (!packet->len)
		return before(packet->seq, shown_ack(half));
	return packet->len == 1 || (half->core->runs_len && !before(packet->seq, half->core->acked) && before(packet->seq, runs_end(half)));
}

// A duplicate ACK (RFC 5681 section 2), before it is noted.
INLINE int is_duplicate(const struct half *half, const struct packet *packet)
{
	return half->core->flags & HALF_ACKED && half->core->flags & HALF_LAST && packet->ack == half->core->acked && !packet->len &&
	       packet->flags & ACK && !(packet->flags & (SYN | FIN | RST)) && packet->window == half->core->last_window &&
	       half->core->runs_len && before(half->core->acked, runs_end(half)) && !packet->says_more;
}

// Shows the sender an ACK up to `limit`, or all of it. `arrives` is false if the link is down.
INLINE void show_or_lower(const struct half *half, const struct packet *packet, struct verdict *verdict, int kind, int opens,
			  int has_limit, u32 limit, int arrives)
{
	int exempt = kind == OTHER || packet->flags & (SYN | FIN | RST), is_shown = 0;

	FORGET(exempt, packet->seq);
	FORGET(opens, packet->seq);
	has_limit = has_limit && !exempt;
	FORGET(has_limit, packet->seq);
	u32 shown = 0;

	if (has_limit) {
		shown = shown_ack(half);
		limit = later(shown, limit);
	}
	// Lowered to the last ACK shown, it would be a duplicate ACK.
	if (has_limit && !packet->len && limit == shown && !packet->says_more && !opens) {
		verdict->withhold = 1;
	} else if (has_limit && keeps_the_edge(half, packet, limit)) {
		lower(half, packet, verdict, limit);
		is_shown = 1;
	} else if (kind != OTHER && arrives) {
		half->core->flags &= ~(HALF_RECORDING | HALF_SHRUNK);
		is_shown = 1;
	}
	FORGET(is_shown, packet->seq);
	if (is_shown)
		show(half, packet->now, verdict->ack);
}

// Replaces the echo of a timestamp from before the outage, which would prove that nothing was lost (RFC 3522).
INLINE void refresh_echo(const struct half *half, const struct packet *packet, struct verdict *verdict)
{
	u64 now = packet->now;
	u64 elapsed = now > half->rest->refresh_at ? now - half->rest->refresh_at : 0;
	u64 ticks = (elapsed - elapsed / DRIFT_PART) * half->rest->refresh_ticks_per_sec / 1000000000ULL;

	verdict->refresh = 1;
	verdict->ecr = half->rest->refresh_value + (u32)ticks;
}

// Echoes the newest timestamp of the data's sender. To the host, an ACK that arrives now cannot echo one of less than a round trip ago: BBR
// would keep a round trip shorter than any as its minimum for ten seconds. The host's clock is taken to tick once a millisecond (Linux).
INLINE void echo_newest(const struct flow *flow, const struct half *half, const struct half *other, u64 now, struct verdict *verdict,
			int direction)
{
	u64 age = since(now, newest_stamp_at(half));
	u64 early = direction == INCOMING && age < flow->latest ? flow->latest - age : 0;

	verdict->refresh = 1;
	verdict->ecr = newest_stamp(half, other) - (u32)(early / MS);
}

// Whether an ACK begins a stall. One that comes later is recorded, which is reported.
INLINE int begins_stall_now(const struct half *half, const struct half *other, const struct packet *packet, struct verdict *verdict, int is_stalled)
{
	// Only one end at a time: a sender beyond a shrunk window sends its ACKs from that window's edge (Linux's
	// `tcp_acceptable_seq`), which a peer that has received more ignores. With both ends shrunk, only packets of the controller
	// would be accepted, and the controller may end.
	int begins_stall = is_stalled && !(other->core->flags & HALF_SHRUNK) && !(half->core->flags & HALF_SHRUNK) && !(half->core->flags & HALF_SACK) &&
			   half->core->window_shift != UNKNOWN_SHIFT;

	FORGET(begins_stall, packet->seq);
	if (is_stalled && !begins_stall) {
		half->core->flags |= HALF_RECORDING;
		verdict->notice = NOTICE_STALLED;
		verdict->notice_ack = packet->ack;
	}
	return begins_stall;
}

// Whether an ACK that is not accepted acknowledges more than is known: data that took another path, fragments, or data of an old segment.
INLINE int is_beyond_known(const struct half *half, const struct packet *packet, int kind)
{
	return kind == OTHER && half->core->flags & HALF_ACKED && (packet->flags & (ACK | RST)) == ACK && before(half->core->acked, packet->ack);
}

// Whether an ACK ends a limit of the window.
INLINE int ends_limit(const struct half *half, const struct packet *packet, int kind)
{
	if (!(half->core->flags & HALF_UNTIL_HEARD) || (half->core->flags & HALF_UNTIL_ACKED && !before(shown_ack(half), packet->ack)))
		return 0;
	return kind == ADVANCING || kind == REPEATED || is_beyond_known(half, packet, kind);
}

// Adapts `holding` to this ACK: recorded ACKs may precede it, held ones may be released. `is_heard`: the ACK ends a limit of the window.
INLINE int holding_of_ack(const struct half *half, const struct link *link, const struct packet *packet, struct verdict *verdict, int kind,
			  int holding, int was_held, int direction, int *is_heard)
{
	if (half->core->flags & HALF_CLOCKED && link->expires_at > packet->now) {
		verdict->notice = NOTICE_QUEUED;
		verdict->notice_ack = half->core->flags & HALF_ACKED ? half->core->acked : packet->ack;
		holding = HOLD_ALL;
	} else if (link->is_releasing && (!was_held || flows_since_up(half, link, direction))) {
		// Flowing data needs no release: its ACKs pass.
		holding = HOLD_NOTHING;
	}
	*is_heard = FLOW_ORDERS && !link->is_down && ends_limit(half, packet, kind);

	FORGET(*is_heard, packet->seq);
	if (FLOW_ORDERS && *is_heard) {
		half->core->flags &= ~(HALF_LIMITED | HALF_UNTIL_HEARD | HALF_UNTIL_ACKED);
		holding = HOLD_NOTHING;
	}
	FORGET(holding, packet->seq);
	return holding;
}

// Whether an ACK is the first after LONG_SILENCE and is shown in two steps, from `from` on.
INLINE int is_cut_in_two(const volatile struct rules *rules, const struct half *half, const struct half *other, const struct link *link,
			 const struct packet *packet, int kind, u64 was_advanced_at, int holding, int is_heard, int direction, u32 *from)
{
	int is_first = direction == INCOMING ? ends_host_silence(rules, half, other, link, packet, kind, was_advanced_at)
					     : ends_peer_silence(half, packet, kind);

	FORGET(is_first, packet->seq);
	if (!is_first)
		return 0;
	*from = direction == INCOMING ? shown_ack(half) : half->rest->resumed_from;
	int is_cut = holding != HOLD_ALL && !is_heard && may_be_cut_in_two(rules, half, link, packet, *from);

	FORGET(is_cut, packet->seq);
	return is_cut;
}

// When the held part of an ACK is to be flushed.
INLINE void set_flush(const volatile struct rules *rules, const struct half *half, struct verdict *verdict, u64 now, int kind, int holding,
		      int is_cut)
{
	if (holding == HOLD_ALL || !is_held(half)) {
		cancel_flush(half);
	} else if (is_cut) {
		verdict->notice = NOTICE_CUT;
		flush_by(half, now + CUT_FLUSH);
	} else if (kind == ADVANCING && holding == HOLD_LAST) {
		// The controller has missed an overdue flush.
		if (!half->acks->flush_at || half->acks->flush_at <= now)
			verdict->notice = NOTICE_HELD;
		flush_by(half, now + rules->hold_flush);
	}
}

// Handles an ACK of the data of `half`.
INLINE void take_ack(struct flow *flow, const struct link *link, const volatile struct rules *rules, const struct packet *packet,
		     struct verdict *verdict, int direction)
{
	struct half acks = half_of(flow, direction), data = half_of(flow, !direction), *half = &acks, *other = &data;
	u64 now = packet->now;
	int stalls = is_stalling(link, flow, now);
	FORGET(stalls, packet->seq);
	int holding = holding_now(rules, link, stalls, now);
	FORGET(holding, packet->seq);
	int was_held = is_held(half);
	FORGET(was_held, packet->seq);
	int opens = opens_window(half, packet);
	FORGET(opens, packet->seq);
	int is_dropped = FLOW_ORDERS && direction == INCOMING && link->drops_duplicates && link->expires_at > now &&
			 now < half->acks->advanced_at + DROPS_DUPLICATES_FOR && is_duplicate(half, packet);
	FORGET(is_dropped, packet->seq);
	u32 was_acked = half->core->acked;
	// Only for ACKs that may advance: others do not need the cache line.
	u64 was_advanced_at = direction == OUTGOING || packet->ack == was_acked ? 0 : half->acks->advanced_at;

	if (direction == INCOMING) {
		FORGET(was_advanced_at, packet->now);
	}
	int is_past = direction == INCOMING && !(packet->flags & SYN) && is_before_window(other, packet);
	u32 newest = newest_stamp(other, half);

	FORGET(newest, packet->seq);
	BARRIER();
	int kind = is_past ? OTHER : note_ack(half, packet);

	FORGET(kind, packet->seq);
	BARRIER();
	note_stamp(other, half, packet, newest);
	BARRIER();
	if (kind == ADVANCING) {
		verdict->advances = 1;
		note_flight(half, flow, now);
	}
	FORGET(kind, packet->seq);
	int is_stalled = stalls && holding == HOLD_ALL && kind == ADVANCING;

	FORGET(is_stalled, packet->seq);
	FORGET(holding, packet->seq);
	FORGET(kind, packet->seq);
	int begins_stall = begins_stall_now(half, other, packet, verdict, is_stalled);
	int is_heard;

	holding = holding_of_ack(half, link, packet, verdict, kind, holding, was_held, direction, &is_heard);
	u32 limit = packet->ack;
	int has_limit = 0;

	if (!begins_stall && holding == HOLD_ALL) {
		has_limit = half->core->flags & HALF_ACKED;
		limit = shown_ack(half);
	} else if (!begins_stall && holding == HOLD_LAST) {
		has_limit = hold_back(rules, link, half, packet, kind, was_acked, direction, &limit);
	}
	u32 from = 0;
	int is_cut = is_cut_in_two(rules, half, other, link, packet, kind, was_advanced_at, holding, is_heard, direction, &from);

	half->core->flags &= ~HALF_RESUMED;
	if (is_cut) {
		set_shown(half, from);
		has_limit = 1;
		limit = from + 1;
	}
	FORGET(has_limit, packet->seq);
	FORGET(limit, packet->seq);
	FORGET(holding, packet->seq);
	FORGET(kind, packet->seq);
	FORGET(begins_stall, packet->seq);
	if (refreshes(rules, half, link, now) && packet->has_stamps && !before(half->rest->refresh_stale, packet->ecr))
		refresh_echo(half, packet, verdict);
	else if (is_cut)
		echo_newest(flow, half, other, now, verdict, direction);
	// The rest of the ACK follows soon, with the same echo.
	if (is_cut)
		half->core->last_ecr = verdict->ecr;
	int was_recording = half->core->flags & HALF_RECORDING;

	// A dropped duplicate is not shown. One that ends a freeze opens the window.
	if (FLOW_ORDERS && is_dropped && !is_heard)
		verdict->withhold = 1;
	else
		show_or_lower(half, packet, verdict, kind, opens && kind == REPEATED, has_limit, limit,
			      direction == INCOMING || !link->is_down || link->is_releasing);
	if (was_recording && !(half->core->flags & HALF_RECORDING))
		verdict->notice = NOTICE_OPENED;
	if (begins_stall) {
		half->core->flags |= HALF_SHRUNK;
		shrink_window(half, packet, verdict);
		verdict->shrink = verdict->window_changed;
	}
	set_flush(rules, half, verdict, now, kind, holding, is_cut);
	limit_window(half, link, packet, verdict, direction);
	if (FLOW_ORDERS && is_heard) {
		verdict->notice = NOTICE_HEARD;
		verdict->notice_ack = packet->ack;
	}
}

// The link went down or came up since the last packet: measurements of round trips in progress are discarded.
INLINE void catch_up(struct flow *flow, const struct link *link)
{
	if (flow->epoch == link->epoch)
		return;
	flow->epoch = link->epoch;
	flow->flags &= ~(TRIP_STAMPED | TRIP_TIMED);
	if (link->is_down && !link->is_releasing) {
		struct half out = half_of(flow, OUTGOING), in = half_of(flow, INCOMING);

		cancel_flush(&out);
		cancel_flush(&in);
		flow->outgoing.flags &= ~HALF_REFRESH;
		flow->incoming.flags &= ~HALF_REFRESH;
	}
}

// Handles a segment that is not beyond the window.
INLINE void take_segment(struct flow *flow, const struct link *link, const volatile struct rules *rules,
			 const struct packet *packet, struct verdict *verdict, int direction)
{
	struct half acks = half_of(flow, direction), data = half_of(flow, !direction);

	catch_up(flow, link);
	BARRIER();
	if (direction == OUTGOING) {
		time_outgoing(flow, packet);
		BARRIER();
	} else {
		time_incoming(flow, packet);
		BARRIER();
		note_resumption(&data, &acks, packet);
	}
	note_data(&data, packet);
	BARRIER();
	take_ack(flow, link, rules, packet, verdict, direction);
}
