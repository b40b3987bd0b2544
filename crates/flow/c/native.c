// Functions for Rust in a process (src/ffi.rs): the shell around flow.h, in which one thread has a flow at a time; selectors and courses.

#include "course.h"
#include "entry.h"
#include "flow.h"
#include "selector.h"

INLINE struct prediction *neighbour_of(struct prediction *own, u32 number)
{
	return number & 1 ? own - 1 : own + 1;
}

// Whether header prediction takes the packet. The header is rebuilt from the fields that were read.
static int is_predicted(struct flow *flow, struct prediction *place, const struct key *key, const struct packet *packet, int direction)
{
	struct prediction *own = place + direction;

	if (!packet->is_plain || !is_active(own, key))
		return 0;
	struct plain tcp = {
		.seq = BE32(packet->seq),
		.ack = BE32(packet->ack),
		.window = BE16(packet->window),
		.val = BE32(packet->val),
		.ecr = BE32(packet->ecr),
	};

	if (!note_if_predicted(own, direction, &tcp, packet->len, packet->segment_size, direction))
		return 0;
	// No other processor waits for the flow here, so it is always up to date.
	fold(flow, own, key, direction);
	return 1;
}

// A segment passes. `place` is two predictions, outgoing first. Returns whether header prediction took it.
u32 flow_handle_segment(struct flow *flow, struct prediction *place, const struct key *key, const struct link *link,
			const struct rules *rules, const struct packet *packet, struct verdict *verdict, u32 direction, u32 is_new)
{
	int way = direction & 1;

	begin_verdict(verdict, packet);
	if (is_calm(link) && is_predicted(flow, place, key, packet, way))
		return 1;
	// The direction is a constant in each, as in the kernel.
	if (flow->stage & STAGE_LEFT_ALONE)
		leave_alone(flow, packet, way);
	else if (way == OUTGOING)
		handle_segment(flow, link, rules, key, packet, verdict, place, place + 1, is_new, is_calm(link), OUTGOING);
	else
		handle_segment(flow, link, rules, key, packet, verdict, place + 1, place, is_new, is_calm(link), INCOMING);
	return 0;
}

void flow_handle_order(struct flow *flow, struct prediction *place, const struct order *order)
{
	int way = order->direction & 1;

	handle_order(flow, order, place + way, place + !way);
}

// Frees a prediction of a flow that is gone.
void flow_free_prediction(struct prediction *prediction, const struct key *key)
{
	free_prediction(prediction, key);
}

u32 flow_prediction_number(const struct key *key, u32 direction)
{
	return prediction_number(key, direction & 1);
}

u32 flow_is_active(const struct prediction *prediction, const struct key *key)
{
	return is_active(prediction, key);
}

// An `enum finding`. `flow` may be 0.
u32 flow_find_at_host(const struct flow *flow, const struct packet *packet, u32 direction)
{
	return find_at_host(flow, packet, direction & 1);
}

u32 flow_is_calm(const struct link *link)
{
	return is_calm(link);
}

u32 flow_is_stalling(const struct link *link, const struct flow *flow, u64 now)
{
	return is_stalling(link, flow, now);
}

// An `enum holding`.
u32 flow_holding(const struct link *link, const struct rules *rules, const struct flow *flow, u64 now)
{
	return holding_now(rules, link, is_stalling(link, flow, now), now);
}

// Lowers an ACK that the controller makes, whose receiver is that of the ACKs that go in `direction`.
void flow_lower(const struct flow *flow, const struct packet *packet, struct verdict *verdict, u32 ack, u32 direction)
{
	struct half half = half_of(flow, direction & 1);

	begin_verdict(verdict, packet);
	lower(&half, packet, verdict, ack);
}

// The Ethernet header of a packet.
void flow_note_frame(struct flow *flow, const u8 *frame, u64 now, u32 direction)
{
	u32 check = check_of(frame, now);

	if (*frame_check(flow, direction & 1) == check)
		return;
	__builtin_memcpy(frame_of(flow, direction & 1), frame, FRAME_LEN);
	*frame_check(flow, direction & 1) = check;
}

// ---- Entries (entry.h). ----

// A segment of an entry without details passes. Returns whether the flow is to have details from now on.
u32 flow_follow(struct entry *entry, const struct rules *rules, const struct packet *packet, u32 direction)
{
	struct flow flow = {};

	return follow(entry, &flow, rules, packet, direction & 1);
}

// `flow` is all zeros.
void flow_expand(struct flow *flow, const struct entry *entry, u32 epoch)
{
	expand(flow, entry, epoch);
}

void flow_compact(struct entry *entry, const struct flow *flow)
{
	compact(entry, flow);
}

u32 flow_needs_details(const struct link *link)
{
	return needs_details(link);
}

u32 flow_is_at_rest(const struct flow *flow)
{
	return is_at_rest(flow);
}

// As flow_handle_segment, in a shell between two hosts, without header prediction. Returns whether the receiver would refuse the segment,
// which passes then.
u32 flow_pass_between(struct flow *flow, const struct key *key, const struct link *link, const struct rules *rules,
		      const struct packet *packet, struct verdict *verdict, u32 direction)
{
	struct prediction none[2] = {};
	int way = direction & 1;

	begin_verdict(verdict, packet);
	return !pass_between(flow, link, rules, key, packet, verdict, none, way);
}

// As flow_find_at_host.
u32 flow_find_between(const struct flow *flow, const struct packet *packet)
{
	if (!flow)
		return find_between(0, 0, 0, 0, packet);
	return find_between(1, flow->stage, flow->host_isn, flow->incoming.flags | flow->outgoing.flags, packet);
}

u32 flow_is_under_way(const struct flow *flow)
{
	return is_under_way(flow->stage, flow->incoming.flags | flow->outgoing.flags);
}

// ---- Selectors (selector.h). ----

u32 flow_selects(const struct selector *selector, const struct ends *ends)
{
	return selects(selector, ends, is_within_host(ends));
}

// ---- Courses (course.h). ----

u32 flow_diverts(u32 course, u32 rule, u32 is_tcp)
{
	return diverts(course, rule, is_tcp);
}

// ---- For the tests of the Rust side. ----

void flow_note_run(struct flow *flow, u32 start, u32 end, u32 size)
{
	struct half half = half_of(flow, OUTGOING);

	note_run(&half, start, end, size);
}

u32 flow_before_last(const struct flow *flow, u32 acked, u32 wanted, u32 *limit)
{
	struct half half = half_of(flow, OUTGOING);

	return before_last(&half, acked, wanted, limit);
}

// Sizes and offsets as this compiler has them: src/layout.rs has the same list.
#include "layout_table.h"
