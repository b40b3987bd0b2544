// Mode `split`: connections of mobile hosts end at this router, in sockets of the daemon with the addresses of the other side (IP_TRANSPARENT).
//
// The daemon has to connect to the far end before the near end gets its SYN-ACK. A listening socket would answer at once, so both hooks of
// the mobile-facing interface redirect each SYN that begins a connection to a TUN device of the daemon. When the far end has answered, the
// daemon writes the SYN to that device, where `deliver` assigns it to a listening socket (bpf_sk_assign). All other packets of these
// connections find their sockets by the daemon's table of nf_tables (crates/gatewayd/src/split/table.rs), on the interface on which they
// arrive. Without the daemon there are neither device, table nor sockets, and SYNs pass.

#pragma once

#include "ip.h"
#include "rules.h"
#include "state.h"

const volatile struct split_setup split = {0};

// Networks of mobile hosts whose connections are all split, or chosen ones (SPLIT_*), and of other hosts (0): the longest prefix applies.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct network_key);
	__type(value, u32);
} split_networks SEC(".maps");

// SPLIT_*; 0 for a host without split connections.
INLINE u32 split_kind(const struct address *address)
{
	return value_of_network(&split_networks, address);
}

#define IS_NO_SYN 0
#define IS_SYN 1
#define IS_FRAGMENT 2

struct ports {
	u16 source, destination;
};

// The addresses and ports of a packet, as a socket lookup takes them.
struct packet_ends {
	struct bpf_sock_tuple tuple;
	u8 is_v6;
	u8 traffic_class;
};

INLINE int read_ports(struct __sk_buff *skb, u32 at, struct ports *ports)
{
	return !bpf_skb_load_bytes(skb, at, ports, sizeof(*ports));
}

// IS_* of a packet with its IP header at `at`. A SYN with IPv6 extension headers passes unsplit: the daemon's sockets would send the other
// half of the connection without these.
INLINE int find_syn(struct __sk_buff *skb, u32 at, struct upper *upper)
{
	u8 flags;
	int kind = read_upper(skb, at, upper);

	if (upper->protocol != IPPROTO_TCP || kind > UPPER_FRAGMENT)
		return IS_NO_SYN;
	if (kind == UPPER_FRAGMENT)
		return IS_FRAGMENT;
	if (upper->has_extensions || bpf_skb_load_bytes(skb, upper->at + TCP_FLAGS, &flags, 1))
		return IS_NO_SYN;
	return (flags & (FIN | SYN | RST | ACK)) == SYN ? IS_SYN : IS_NO_SYN;
}

// The same, with the addresses and ports of a SYN.
INLINE int read_syn(struct __sk_buff *skb, u32 at, struct packet_ends *ends)
{
	struct upper upper = {};
	struct ports ports;
	int kind = find_syn(skb, at, &upper);

	if (kind != IS_SYN)
		return kind;
	if (!read_ports(skb, upper.at, &ports))
		return IS_NO_SYN;
	// Source and destination, one after the other.
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, at + AT(iphdr, saddr), &ends->tuple.ipv4.saddr, 8) ||
		    bpf_skb_load_bytes(skb, at + AT(iphdr, tos), &ends->traffic_class, 1))
			return IS_NO_SYN;
		ends->is_v6 = 0;
		ends->tuple.ipv4.sport = ports.source;
		ends->tuple.ipv4.dport = ports.destination;
	} else {
		if (bpf_skb_load_bytes(skb, at + AT(ipv6hdr, saddr), ends->tuple.ipv6.saddr, 32))
			return IS_NO_SYN;
		ends->is_v6 = 1;
		ends->tuple.ipv6.sport = ports.source;
		ends->tuple.ipv6.dport = ports.destination;
	}
	return IS_SYN;
}

// Whether this router forwards what comes in from the mobile host of a SYN: it is not for the router itself, and not refused. A SYN to a mobile
// host comes from the router itself if it was translated to one of the router's addresses (masquerading): its answers are not forwarded.
INLINE int is_forwarded(struct __sk_buff *skb, const struct packet_ends *ends, int is_out)
{
	struct bpf_fib_lookup lookup = {};

	lookup.l4_protocol = IPPROTO_TCP;
	lookup.ifindex = skb->ifindex;
	if (!ends->is_v6) {
		lookup.family = 2; // AF_INET
		lookup.tos = ends->traffic_class;
		lookup.ipv4_src = is_out ? ends->tuple.ipv4.daddr : ends->tuple.ipv4.saddr;
		lookup.ipv4_dst = is_out ? ends->tuple.ipv4.saddr : ends->tuple.ipv4.daddr;
	} else {
		lookup.family = 10; // AF_INET6
		__builtin_memcpy(lookup.ipv6_src, is_out ? ends->tuple.ipv6.daddr : ends->tuple.ipv6.saddr, 16);
		__builtin_memcpy(lookup.ipv6_dst, is_out ? ends->tuple.ipv6.saddr : ends->tuple.ipv6.daddr, 16);
	}
	int result = bpf_fib_lookup(skb, &lookup, sizeof(lookup), 0);

	// A route with an encapsulation (BPF_FIB_LKUP_RET_UNSUPP_LWT) is found, and only has no result.
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH || result == BPF_FIB_LKUP_RET_FRAG_NEEDED ||
	       result == BPF_FIB_LKUP_RET_UNSUPP_LWT;
}

// The socket of a packet, or one that listens; to be released.
INLINE struct bpf_sock *find_socket(struct __sk_buff *skb, struct packet_ends *ends)
{
	if (ends->is_v6)
		return bpf_skc_lookup_tcp(skb, &ends->tuple, sizeof(ends->tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	return bpf_skc_lookup_tcp(skb, &ends->tuple, sizeof(ends->tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

// Whether a socket of this host has the packet's addresses and ports. One in TIME_WAIT gives way to a new connection.
INLINE int has_socket(struct __sk_buff *skb, struct packet_ends *ends)
{
	struct bpf_sock *socket = find_socket(skb, ends);

	if (!socket)
		return 0;
	u32 state = socket->state;

	bpf_sk_release(socket);
	return state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT;
}

// IS_*. A function of its own, for its frame on the stack.
static __attribute__((noinline)) int kind_of_packet(struct __sk_buff *skb)
{
	struct upper upper = {};

	return find_syn(skb, rules.frame_len, &upper);
}

// Whether a connection that a packet may begin is to be split, by the mode of its mobile host and by the rules. Not nested with
// `begins_split`: their frames would be too long together.
static __attribute__((noinline)) int may_split(struct __sk_buff *skb, const struct address *on_stack, int direction)
{
	struct address address = *on_stack;
	u32 kind = split_kind(&address);

	if (!kind || !flow_rules_len)
		return kind;
	int what = kind_of_packet(skb);

	// `begins_split` counts fragments.
	if (what != IS_SYN)
		return what == IS_FRAGMENT && kind == SPLIT_ALL;
	u32 verdict = find_rule_of_packet(skb, direction);

	return verdict ? !!(verdict & RULE_SPLITS) : kind == SPLIT_ALL;
}

// Whether the daemon decides about a packet that `may_split`: a SYN that begins a connection.
static __attribute__((noinline)) int begins_split(struct __sk_buff *skb, int is_out)
{
	struct packet_ends ends = {};
	u32 one = 1;
	u32 mtu = 0;
	int kind = read_syn(skb, rules.frame_len, &ends);

	if (kind == IS_FRAGMENT)
		count(SPLIT_FRAGMENT);
	if (kind != IS_SYN || has_socket(skb, &ends))
		return 0;
	// Without IPv6 there is no listening socket.
	if (ends.is_v6 && !split.from_mobiles[1])
		return 0;
	if (!is_forwarded(skb, &ends, is_out))
		return 0;
	u64 *expires = bpf_map_lookup_elem(&expiry, &one);

	if (!expires || bpf_ktime_get_ns() >= *expires || bpf_check_mtu(skb, split.device, &mtu, 0, 0) == NO_DEVICE) {
		count(SPLIT_EXPIRED);
		return 0;
	}
	count(SPLIT_SYN);
	return 1;
}

#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER 12
#define ICMPV6_LAST_ERROR 4

INLINE int is_icmp_error(u8 protocol, u8 type)
{
	if (protocol == IPPROTO_ICMP)
		return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER;
	return protocol == IPPROTO_ICMPV6 && type && type <= ICMPV6_LAST_ERROR;
}

// Whether a packet to a mobile host is an ICMP error of this router about a packet of a socket here. (The socket has received errors of
// other routers on their arrival.)
static __attribute__((noinline)) int is_about_socket(struct __sk_buff *skb)
{
	struct packet_ends ends = {};
	struct upper upper = {};
	struct ports ports;
	u8 type;

	if (read_upper(skb, rules.frame_len, &upper) != UPPER_WHOLE)
		return 0;
	if (upper.protocol != IPPROTO_ICMP && upper.protocol != IPPROTO_ICMPV6)
		return 0;
	if (bpf_skb_load_bytes(skb, upper.at, &type, 1) || !is_icmp_error(upper.protocol, type))
		return 0;
	// The packet that the error is about.
	u32 at = upper.at + 8;

	if (read_upper(skb, at, &upper) != UPPER_WHOLE || upper.protocol != IPPROTO_TCP || !read_ports(skb, upper.at, &ports))
		return 0;
	ends.is_v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	// That packet went the other way.
	if (!ends.is_v6) {
		if (bpf_skb_load_bytes(skb, at + AT(iphdr, saddr), &ends.tuple.ipv4.daddr, 4) ||
		    bpf_skb_load_bytes(skb, at + AT(iphdr, daddr), &ends.tuple.ipv4.saddr, 4))
			return 0;
		ends.tuple.ipv4.sport = ports.destination;
		ends.tuple.ipv4.dport = ports.source;
	} else {
		if (bpf_skb_load_bytes(skb, at + AT(ipv6hdr, saddr), ends.tuple.ipv6.daddr, 16) ||
		    bpf_skb_load_bytes(skb, at + AT(ipv6hdr, daddr), ends.tuple.ipv6.saddr, 16))
			return 0;
		ends.tuple.ipv6.sport = ports.destination;
		ends.tuple.ipv6.dport = ports.source;
	}
	return has_socket(skb, &ends);
}

// On ingress of the daemon's device: routes ICMP errors to this host, and gives a SYN that the daemon has written to the listening socket.
SEC("classifier")
int deliver(struct __sk_buff *skb)
{
	struct packet_ends ends = {};
	struct address source = {};
	struct bpf_sock *socket;

	// Nothing else comes here.
	if (read_syn(skb, 0, &ends) != IS_SYN) {
		skb->mark = split.mark;
		return PASS;
	}
	if (!ends.is_v6) {
		set_ipv4(&source, ends.tuple.ipv4.saddr);
		ends.tuple.ipv4.daddr = bpf_htonl(0x7f000001);
		ends.tuple.ipv4.dport = split_kind(&source) ? split.from_mobiles[0] : split.from_others[0];
	} else {
		__builtin_memcpy(&source, ends.tuple.ipv6.saddr, 16);
		__builtin_memset(ends.tuple.ipv6.daddr, 0, 12);
		ends.tuple.ipv6.daddr[3] = bpf_htonl(1);
		ends.tuple.ipv6.dport = split_kind(&source) ? split.from_mobiles[1] : split.from_others[1];
	}
	socket = find_socket(skb, &ends);
	if (!socket)
		return TC_ACT_SHOT;
	int result = socket->state == BPF_TCP_LISTEN ? bpf_sk_assign(skb, socket, 0) : -1;

	bpf_sk_release(socket);
	if (result)
		return TC_ACT_SHOT;
	skb->mark = split.mark;
	return PASS;
}
