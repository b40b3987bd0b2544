// What becomes of an ACK: passed, lowered or withheld.

#pragma once

#define HOLD_NOTHING 0
#define HOLD_LAST 1
#define HOLD_ALL 2

#define USUAL_LEAD (150 * MS)
#define LEAD_MARGIN (10 * MS)
#define LONGEST_LEAD (1000 * MS)
#define PART_OF_WINDOW 8
#define USUAL_SEGMENT 1460
#define DRIFT_PART 5000

INLINE int is_stalling(const struct link *link, const struct connection *connection, u64 now)
{
	u64 lead = link->stall_lead;

	if (link->is_down || !link->has_stall)
		return 0;
	if (!lead && connection->flags & TRIP_SAMPLED) {
		lead = connection->smoothed > connection->latest ? connection->smoothed : connection->latest;
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

INLINE int refreshes(const struct half *half, const struct link *link, u64 now)
{
	return half->flags & HALF_REFRESH && (link->awaits_packets || (link->has_up && since_up(link, now) < rules.refresh_for));
}

INLINE int holding_now(const struct link *link, int stalls, u64 now)
{
	if (!rules.holds || link->expires_at <= now)
		return HOLD_NOTHING;
	if (link->is_down || stalls)
		return HOLD_ALL;
	if (!rules.hold_segments || link->awaits_packets || (link->has_up && since_up(link, now) < rules.hold_pause))
		return HOLD_NOTHING;
	return HOLD_LAST;
}

// Whether the right edge of the window stays where it is if the ACK is lowered: an edge that is drawn back at both ends is the end.
INLINE int keeps_the_edge(const struct half *half, const struct packet *packet, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	return !held || (half->window_shift != UNKNOWN_SHIFT && (held >> shift_or(half, 0)) + packet->window <= 0xffff);
}

// hold_back.rs, `limit`.
INLINE int hold_back(const struct half *half, const struct packet *packet, int kind, u32 *limit)
{
	if (kind != ADVANCING || packet->sack_len || packet->flags & (SYN | FIN | RST))
		return 0;
	if (half->flags & HALF_ENDING || half->bytes_acked < rules.hold_after_bytes ||
	    half->bytes_acked < half->hold_from)
		return 0;
	if (!before_last(half, half->acked, rules.hold_segments, limit))
		return 0;
	u32 held = saturating_since(packet->ack, *limit);
	u32 window = (u32)packet->window << shift_or(half, 0);

	if (half->flight_bytes < window)
		window = half->flight_bytes;
	return held <= window / PART_OF_WINDOW && keeps_the_edge(half, packet, *limit);
}

INLINE int flows_since(const struct half *half, const struct link *link, int direction)
{
	u64 last = direction == OUTGOING ? half->last_data_at : half->advanced_at;

	return link->has_up && last && last >= link->up_at;
}

INLINE void lower(const struct half *half, const struct packet *packet, struct verdict *verdict, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	if (!held)
		return;
	verdict->lower = 1;
	verdict->ack = ack;
	if (half->window_shift != UNKNOWN_SHIFT) {
		u32 units = held >> shift_or(half, 0);
		u32 window = packet->window + (units > 0xffff ? 0xffff : units);

		verdict->window = window > 0xffff ? 0xffff : window;
		verdict->window_changed = verdict->window != packet->window;
	}
}

INLINE void draw_in(const struct half *half, const struct packet *packet, struct verdict *verdict)
{
	u32 shift = shift_or(half, 0);

	if (!half->longest_segment)
		return;
	u32 segment = half->longest_segment < USUAL_SEGMENT ? half->longest_segment : USUAL_SEGMENT;
	u32 units = (2 * segment + (1u << shift) - 1) >> shift;

	if (units < verdict->window) {
		verdict->drawn_in = 1;
		verdict->window = units;
		verdict->window_changed = verdict->window != packet->window;
	}
}

INLINE void show_or_lower(struct half *half, const struct packet *packet, struct verdict *verdict, int kind, int opens,
			  int has_limit, u32 limit, int arrives)
{
	int exempt = kind == OTHER || packet->flags & (SYN | FIN | RST);

	has_limit = has_limit && !exempt;
	limit = later(half->shown, limit);
	if (has_limit && !packet->len && limit == half->shown && !packet->says_more && !opens) {
		verdict->withhold = 1;
	} else if (has_limit && keeps_the_edge(half, packet, limit)) {
		lower(half, packet, verdict, limit);
		show(half, packet->now, verdict->ack);
	} else if (kind != OTHER && arrives) {
		half->flags &= ~(HALF_RECORDING | HALF_DRAWN_IN);
		show(half, packet->now, verdict->ack);
	}
}

INLINE void take_ack(struct connection *connection, struct half *half, const struct link *link, const struct packet *packet,
		     struct verdict *verdict, int direction)
{
	u64 now = packet->now;
	int stalls = is_stalling(link, connection, now);
	int holding = holding_now(link, stalls, now);
	int is_up = !link->is_down || link->is_releasing;
	int is_past = direction == INCOMING && !(packet->flags & SYN) && is_before_window(&connection->outgoing, packet);
	int was_held = is_held(half), opens = opens_window(half, packet);
	int kind = is_past ? OTHER : note_ack(half, packet);
	if (kind == ADVANCING)
		note_flight(half, connection, now);
	int is_stalled = stalls && holding == HOLD_ALL && kind == ADVANCING;
	const struct half *other = direction == OUTGOING ? &connection->incoming : &connection->outgoing;
	// One end at a time: if both had sent beyond the window that they see, neither would take the other's ACKs.
	int begins_stall = is_stalled && !(other->flags & HALF_DRAWN_IN) && !(half->flags & HALF_DRAWN_IN) &&
			   !half->sack_len && half->window_shift != UNKNOWN_SHIFT;

	if (is_stalled && !begins_stall) {
		half->flags |= HALF_RECORDING;
		verdict->notice = NOTICE_STALLED;
		verdict->notice_ack = packet->ack;
	}
	if (half->flags & HALF_CLOCKED && link->expires_at > now) {
		verdict->notice = NOTICE_QUEUED;
		verdict->notice_ack = half->flags & HALF_ACKED ? half->acked : packet->ack;
		holding = HOLD_ALL;
	} else if (link->is_releasing && (!was_held || flows_since(half, link, direction))) {
		holding = HOLD_NOTHING;
	}
	u32 limit = half->shown;
	int has_limit = 0;

	if (!begins_stall && holding == HOLD_ALL)
		has_limit = half->flags & HALF_ACKED;
	else if (!begins_stall && holding == HOLD_LAST && rules.hold_segments)
		has_limit = hold_back(half, packet, kind, &limit);
	if (refreshes(half, link, now) && packet->stamps_at && !before(half->refresh_stale, packet->ecr)) {
		u64 elapsed = now > half->refresh_at ? now - half->refresh_at : 0;
		u64 ticks = (elapsed - elapsed / DRIFT_PART) * half->refresh_ticks_per_sec / 1000000000ULL;

		verdict->refresh = 1;
		verdict->ecr = half->refresh_value + (u32)ticks;
	}
	int was_recording = half->flags & HALF_RECORDING;

	show_or_lower(half, packet, verdict, kind, opens && kind == REPEATED, has_limit, limit, is_up || direction == INCOMING);
	if (was_recording && !(half->flags & HALF_RECORDING))
		verdict->notice = NOTICE_OPENED;
	if (begins_stall) {
		half->flags |= HALF_DRAWN_IN;
		draw_in(half, packet, verdict);
		verdict->drawn_in = verdict->window_changed;
	}
	if (holding != HOLD_LAST || !is_held(half)) {
		half->flush_at = 0;
	} else if (kind == ADVANCING) {
		if (!half->flush_at || half->flush_at <= now)
			verdict->notice = NOTICE_HELD;
		half->flush_at = now + rules.hold_flush;
	}
}

INLINE void catch_up(struct connection *connection, const struct link *link)
{
	if (connection->epoch == link->epoch)
		return;
	connection->epoch = link->epoch;
	connection->flags &= ~(TRIP_STAMPED | TRIP_TIMED);
	if (link->is_down && !link->is_releasing) {
		connection->outgoing.flush_at = connection->incoming.flush_at = 0;
		connection->outgoing.flags &= ~HALF_REFRESH;
		connection->incoming.flags &= ~HALF_REFRESH;
	}
}

// The connection's state after a packet, and what becomes of that.
INLINE void look(struct connection *connection, const struct link *link, const struct packet *packet,
		 struct verdict *verdict, int direction)
{
	catch_up(connection, link);
	if (direction == OUTGOING) {
		trip_outgoing(connection, packet);
		note_data(&connection->incoming, packet);
		take_ack(connection, &connection->outgoing, link, packet, verdict, OUTGOING);
	} else {
		trip_incoming(connection, packet);
		note_data(&connection->outgoing, packet);
		take_ack(connection, &connection->incoming, link, packet, verdict, INCOMING);
	}
}
