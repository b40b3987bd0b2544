// The flow path: decides on every TCP packet. A pure function of the state of the flow, the link, the rules and the packet;
// time is part of the packet. It allocates nothing, sends nothing and has no timer. A shell around it finds the flow, reads the packet and
// carries out the verdict: crates/agent/bpf/path.bpf.c in the kernel, native.c and the Rust of this crate in a process.

#pragma once

#include "header_prediction.h"
#include "lifecycle.h"
#include "orders.h"

INLINE void begin_verdict(struct verdict *verdict, const struct packet *packet)
{
	verdict->ack = packet->ack;
	verdict->ecr = packet->ecr;
	verdict->window = packet->window;
}

// The notice has the direction of the probe, and the last ACK of the opposite direction.
INLINE void note_probe(const struct flow *flow, struct verdict *verdict, int direction)
{
	verdict->notice = NOTICE_PROBED;
	verdict->notice_ack = half_of(flow, !direction).core->acked;
}

// Handles a segment that header prediction did not handle. `own` is the line of its direction, `other` its neighbour. The caller holds the
// lock of the flow and has called `begin_verdict`.
INLINE void handle_segment(struct flow *flow, const struct link *link, const volatile struct rules *rules, const struct key *key,
			   const struct packet *packet, struct verdict *verdict, struct prediction *own, struct prediction *other,
			   int is_new, int link_is_calm, int direction)
{
	struct half acks = half_of(flow, direction), outgoing = half_of(flow, OUTGOING);

	note_seen(flow, packet->now);
	BARRIER();
	// An earlier flow with the same key may have left predictions.
	if (is_new) {
		stop_prediction(own, key);
		stop_prediction(other, key);
	}
	fold(flow, own, key, direction);
	BARRIER();
	fold(flow, other, key, !direction);
	BARRIER();
	verdict->probe = FLOW_ORDERS && is_window_probe(flow, link, packet, direction);
	// A probe without data is below the window, and its receiver ignores it. For an absent receiver the controller answers it.
	if (FLOW_ORDERS && verdict->probe && (!packet->len || (packet->len == 1 && link->is_down))) {
		verdict->withhold = link->is_down && direction == OUTGOING;
		note_probe(flow, verdict, direction);
		return;
	}
	if (direction == OUTGOING || packet->flags & SYN || !is_beyond_window(&outgoing, packet)) {
		take_segment(flow, link, rules, packet, verdict, direction);
		update_predictions(flow, link, rules, key, packet, verdict, own, other, link_is_calm, direction);
	} else {
		catch_up(flow, link);
	}
	if (FLOW_ORDERS && verdict->probe && !verdict->notice)
		note_probe(flow, verdict, direction);
	note_stage(flow, packet, direction);
	if (verdict->withhold)
		acks.rest->withheld++;
	if (verdict->lower)
		acks.acks->lowered++;
}

INLINE void apply_to(struct flow *flow, const struct order *order, int direction)
{
	struct half half = half_of(flow, direction);

	apply(&half, order);
}

// A segment of a flow that a policy leaves alone.
INLINE void leave_alone(struct flow *flow, const struct packet *packet, int direction)
{
	note_seen(flow, packet->now);
	note_stage(flow, packet, direction);
}

// Carries out an order. The caller holds the lock of the flow.
INLINE void handle_order(struct flow *flow, const struct order *order, struct prediction *own, struct prediction *other)
{
	int direction = order->direction & 1;

	fold(flow, own, &order->key, direction);
	if (order->kind == ORDER_FREE) {
		free_prediction(own, &order->key);
	} else {
		fold(flow, other, &order->key, !direction);
		if (order->kind != ORDER_FOLD) {
			stop_prediction(own, &order->key);
			stop_prediction(other, &order->key);
		}
	}
	if (order->kind == ORDER_LEAVE_ALONE)
		flow->stage = order->a ? flow->stage | STAGE_LEFT_ALONE : flow->stage & ~STAGE_LEFT_ALONE;
	else if (order->direction == OUTGOING)
		apply_to(flow, order, OUTGOING);
	else
		apply_to(flow, order, INCOMING);
}
