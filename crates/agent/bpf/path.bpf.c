// The fast path of `wake` as eBPF on an interface: what it remembers of each connection, and what becomes of an ACK.
//
// It is the twin of crates/mobility/src/fast_path: the same state, the same decisions, the same names. A test feeds both the same
// packets and compares what they do and what they remember (crates/agent/tests). Whatever changes there changes here.
//
// Nothing is sent from here, and there is no timer: user space hears of what is to be done in the ring `notices`, looks at a
// connection in the map `connections`, and changes it by running `order`. If user space falls silent, `expires_at` of the link
// comes, and from then on every packet passes as it is. Maps and programs go with the process that has loaded them.

#include "path/types.h"
#include "path/state.h"
#include "path/maps.h"
#include "path/packet.h"
#include "path/parse.h"
#include "path/sequence.h"
#include "path/round_trip.h"
#include "path/segments.h"
#include "path/history.h"
#include "path/decisions.h"
#include "path/course.h"
#include "path/header_prediction.h"
#include "path/rewrite.h"
#include "path/notices.h"
#include "path/orders.h"

INLINE struct connection *find(const struct key *key, const struct packet *packet, int direction, int *is_new)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, key);
	int is_syn = packet->flags & SYN && !(packet->flags & ACK);

	if (direction == INCOMING) {
		if (!connection)
			count(ALONE_UNKNOWN);
		return connection;
	}
	// The host's own SYN begins anew, unless it is a repetition.
	if (connection && is_syn && !(connection->gone & GONE_ISN && connection->host_isn == packet->seq)) {
		bpf_map_delete_elem(&connections, key);
		connection = 0;
	}
	// So does a SYN-ACK: the peer has asked for a new connection with the same addresses.
	if (connection && packet->flags & SYN && packet->flags & ACK &&
	    !(connection->gone & GONE_ISN && connection->host_isn == packet->seq)) {
		bpf_map_delete_elem(&connections, key);
		connection = 0;
	}
	if (connection)
		return connection;
	// Whoever is asked for connections by strangers remembers those that the host takes part in beyond its answer.
	if (packet->flags & RST || (packet->flags & SYN && packet->flags & ACK)) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	u32 zero = 0;
	struct blank *anew = bpf_map_lookup_elem(&blank, &zero);

	if (!anew)
		return 0;
	*is_new = 1;
	bpf_map_update_elem(&connections, key, anew, BPF_NOEXIST);
	connection = bpf_map_lookup_elem(&connections, key);
	if (!connection)
		count(ALONE_FULL);
	return connection;
}

#define PASS -1 // TCX_NEXT: whoever else is attached has its turn

INLINE int handle(struct __sk_buff *skb, int direction)
{
	if (goes_on(skb, direction))
		return PASS;
	KEY key = {};
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

	if (!scratch)
		return PASS;
	struct packet *packet = &scratch->packet;
	struct verdict *verdict = &scratch->verdict;

	__builtin_memset(packet, 0, sizeof(*packet));
	__builtin_memset(verdict, 0, sizeof(*verdict));

	if (read_packet(skb, scratch, &key, direction) != READ) {
		if (direction == INCOMING && turn_now() & TURN_LISTENS)
			note_other(skb);
		return PASS;
	}
	u64 turn = turn_now();
	u32 family = family_of(skb);
	const struct link *link = link_of(turn, family);
	u32 number = bulk_number(&key, direction), across = number ^ 1;
	struct bulk *own = bpf_map_lookup_elem(&bulks, &number), *other = bpf_map_lookup_elem(&bulks, &across);

	if (!link || !own || !other)
		return PASS;
	count(direction == OUTGOING ? SEEN : SEEN_IN);
	packet->now = rules.test_clock ? skb->tstamp : bpf_ktime_get_ns();
	if (direction == INCOMING)
		note_incoming(&key, link, family, packet->now);
	int is_new = 0;
	struct connection *connection = find(&key, packet, direction, &is_new);

	if (!connection)
		return PASS;
	if (connection->gone & LEFT_ALONE) {
		bpf_spin_lock(&connection->lock);
		follow(connection, packet, direction);
		bpf_spin_unlock(&connection->lock);
		count(ALONE_POLICY);
		return PASS;
	}
	if (rules.frame_len == ETH_HLEN)
		bpf_skb_load_bytes(skb, 0, direction == OUTGOING ? connection->frame_out : connection->frame_in, ETH_HLEN);
	verdict->ack = packet->ack;
	verdict->ecr = packet->ecr;
	verdict->window = packet->window;
	struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;

	bpf_spin_lock(&connection->lock);
	if (is_new) {
		stop_bulk(own, &key);
		stop_bulk(other, &key);
	}
	fold(connection, own, &key, direction);
	fold(connection, other, &key, !direction);
	if (direction == OUTGOING || packet->flags & SYN || !is_beyond_window(&connection->outgoing, packet)) {
		u32 acked = acks->acked, was_acked = acks->flags & HALF_ACKED;

		look(connection, link, packet, verdict, direction);
		verdict->advances = was_acked && before(acked, acks->acked);
		settle_bulk(connection, link, &key, packet, verdict, own, other, is_calm(turn, family), direction);
	} else {
		catch_up(connection, link);
	}
	follow(connection, packet, direction);
	connection->withheld += verdict->withhold;
	connection->lowered += verdict->lower;
	bpf_spin_unlock(&connection->lock);

	if (direction == INCOMING)
		note_arrival(&key, link, family, packet->now);
	if (verdict->notice)
		tell(&key, packet->now, direction, verdict->notice, verdict->notice_ack);
	if (verdict->withhold) {
		count(WITHHELD);
		// A drop that the host's TCP hears of would be congestion to it. There is no interface 0.
		return direction == OUTGOING ? bpf_redirect(0, 0) : TC_ACT_SHOT;
	}
	rewrite(skb, packet, verdict);
	return PASS;
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_out) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	// For the host itself.
	if (skb->mark && skb->mark == rules.mark_in)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return handle(skb, OUTGOING);
}

SEC("classifier")
int ingress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_in) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	return handle(skb, INCOMING);
}

_Static_assert(__builtin_offsetof(struct order, key) % 8 == 0 && sizeof(struct bulk) == 64, "is_same reads words");

SEC("classifier")
int order(struct __sk_buff *skb)
{
	struct order order;

	if (bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return 1;
	u32 number = bulk_number(&order.key, order.direction & 1), across = number ^ 1;
	struct bulk *own = bpf_map_lookup_elem(&bulks, &number), *other = bpf_map_lookup_elem(&bulks, &across);
	struct connection *connection = bpf_map_lookup_elem(&connections, &order.key);

	if (!own || !other)
		return 1;
	if (connection) {
		bpf_spin_lock(&connection->lock);
		fold(connection, own, &order.key, order.direction & 1);
		if (order.kind == ORDER_FREE_BULK) {
			free_bulk(own, &order.key);
		} else {
			fold(connection, other, &order.key, !(order.direction & 1));
			if (order.kind != ORDER_FOLD) {
				stop_bulk(own, &order.key);
				stop_bulk(other, &order.key);
			}
		}
		if (order.kind == ORDER_LEAVE_ALONE)
			connection->gone = order.a ? connection->gone | LEFT_ALONE : connection->gone & ~LEFT_ALONE;
		else if (order.direction == OUTGOING)
			obey(&connection->outgoing, &order);
		else
			obey(&connection->incoming, &order);
		bpf_spin_unlock(&connection->lock);
	} else if (order.kind == ORDER_FREE_BULK) {
		free_bulk(own, &order.key);
	}
	return !connection;
}

char _license[] SEC("license") = "Dual MIT/GPL";
