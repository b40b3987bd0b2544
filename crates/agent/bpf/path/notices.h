// Notices to user space, and packets that count as signs of life.

#pragma once

#include "ip.h"
#include "maps.h"

// When NOTICE_INCOMING and NOTICE_ARRIVED were last given, for each IP version.
u64 incoming_noticed_at[2] = {};
u64 arrival_noticed_at[2] = {};

#define INCOMING_EVERY (100 * MS)

INLINE void note_incoming(const struct key *key, const struct link *link, u32 family, u64 now)
{
	int is_over = link->is_down && !link->is_releasing && now >= link->down_at + LATE_ARRIVALS;

	if (!is_over && !link->listens)
		return;
	if (now - incoming_noticed_at[family & 1] < INCOMING_EVERY)
		return;
	incoming_noticed_at[family & 1] = now;
	notify(key, now, INCOMING, NOTICE_INCOMING, 0);
}

#define TO_THIS_HOST 0 // PACKET_HOST of linux/if_packet.h
#define PORT_DNS 53

// Counts a packet that was left alone, comes in during a silence and comes from beyond the next hop. ICMP (with neighbour discovery and
// multicast listener discovery, which is behind a hop-by-hop header) and DNS answers may be the router's own; of a fragment, the port may be
// elsewhere.
static __attribute__((noinline)) int note_other(struct __sk_buff *skb)
{
	struct upper upper = {};
	u16 port;

	if (skb->pkt_type != TO_THIS_HOST)
		return 0;
	int kind = read_upper(skb, rules.frame_len, &upper);

	if (kind > UPPER_FRAGMENT)
		return 0;
	// TCP that comes here was left alone, such as multipath TCP: it shows that the link carries packets.
	if (upper.protocol == IPPROTO_ICMP || upper.protocol == IPPROTO_ICMPV6)
		return 0;
	if (upper.protocol == IPPROTO_UDP &&
	    (kind != UPPER_WHOLE || bpf_skb_load_bytes(skb, upper.at, &port, sizeof(port)) || port == bpf_htons(PORT_DNS)))
		return 0;
	count(OTHERS_IN);
	return 0;
}
