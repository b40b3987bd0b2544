// Reads a packet: Ethernet, IPv4 or IPv6 with extension headers (ip.h), TCP and its options. `wire` reads the same in user space.
//
// The shell that includes this has declared `rules` and `count` (of `enum counter`) before.

#pragma once

#include "ip.h"

#include "header_prediction.h"

INLINE u32 read_u32(const u8 *bytes)
{
	return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

#define OPTIONS_MAX 40
#define OPTIONS_MASK 63 // at least OPTIONS_MAX, and within `struct options`

struct options {
	u8 bytes[OPTIONS_MAX + 40]; // an option that begins in the first part ends in the second
};

// Where in the frame things are that may be rewritten.
struct offsets {
	u32 tcp;                    // the TCP header
	u16 stamps;                 // the TSval; 0 without timestamps
	u16 sack[MOST_BLOCKS];      // SACK options: one, or several in a malformed header
	u8 sack_bytes[MOST_BLOCKS]; // their lengths
	u8 sacks;                   // how many there are
};

// State that does not fit the stack, or whose values the verifier would follow through all later code. A processor runs one program at a
// time: both hooks run with softirqs off.
struct scratch {
	struct options options;
	u32 option_at; // how far they are read
	u32 is_signed;    // one of them is a signature
	u32 is_multipath; // one of them is of MPTCP
	struct offsets offsets;
	struct packet packet;
	struct verdict verdict;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

#define GO_ON 0
#define STOP 1

// TCP options (RFC 9293 section 3.1, IANA's kinds).
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2
#define OPTION_WINDOW_SCALE 3
#define OPTION_SACK_PERMITTED 4
#define OPTION_SACK 5
#define OPTION_TIMESTAMPS 8
// Signatures. They cover at least ACK and window: a receiver drops a segment that was changed on its way, or made there.
#define OPTION_MD5 19 // RFC 2385
#define OPTION_AO 29  // RFC 5925
// Multipath TCP (RFC 8684 section 3.3.1): the window counts from the DATA_ACK in the option, not from the ACK in the header.
#define OPTION_MULTIPATH 30

INLINE void read_sack(struct scratch *scratch, const u8 *option, u32 size, u32 at)
{
	struct packet *packet = &scratch->packet;
	struct offsets *offsets = &scratch->offsets;
	u32 number = offsets->sacks & (MOST_BLOCKS - 1);

	packet->sack_len = size >> 3;
	offsets->sack[number] = at;
	offsets->sack_bytes[number] = size;
	offsets->sacks = number + 1;
	UNROLL
	for (int n = 0; n < MOST_BLOCKS; n++) {
		int is_there = n < packet->sack_len;

		packet->sack[n].start = is_there ? read_u32(option + 2 + 8 * n) : 0;
		packet->sack[n].end = is_there ? read_u32(option + 6 + 8 * n) : 0;
	}
}

// Reads one option, and no-operations before it. They begin at `options_at` in the frame and are `len` bytes long. One of wrong length is
// skipped. A global function, which verifiers check by itself, once, and not for each round of the loop that calls it.
__attribute__((noinline)) int read_option(struct scratch *scratch, u32 options_at, u32 len)
{
	if (!scratch)
		return STOP;
	struct packet *packet = &scratch->packet;
	u32 at = READ_ONCE(scratch->option_at);

	// Two of them align the usual options.
	UNROLL
	for (int n = 0; n < 2; n++)
		at += at < len && at < OPTIONS_MAX && scratch->options.bytes[at] == OPTION_NOP;
	FORGET(at, scratch->option_at);
	if (at >= len || at >= OPTIONS_MAX)
		return STOP;
	const u8 *option = scratch->options.bytes + at;
	u8 kind = option[0];

	if (kind == OPTION_END)
		return STOP;
	if (kind == OPTION_NOP) {
		scratch->option_at = at + 1;
		return GO_ON;
	}
	u32 size = at + 1 < len ? option[1] : 0;

	if (size < 2 || at + size > len) {
		packet->says_more = 1;
		return STOP;
	}
	if (kind == OPTION_TIMESTAMPS && size == 10) {
		packet->val = read_u32(option + 2);
		packet->ecr = read_u32(option + 6);
		packet->has_stamps = 1;
		scratch->offsets.stamps = options_at + at + 2;
	} else if (kind == OPTION_SACK && size >= 10 && size <= 34 && (size & 7) == 2) {
		read_sack(scratch, option, size, options_at + at);
	} else if (kind == OPTION_WINDOW_SCALE && size == 3) {
		packet->window_scale = option[2] > 14 ? 14 : option[2];
	} else if (kind == OPTION_MD5 || kind == OPTION_AO) {
		scratch->is_signed = 1;
	} else if (kind == OPTION_MULTIPATH) {
		scratch->is_multipath = 1;
	} else if (!(kind == OPTION_MSS && size == 4) && !(kind == OPTION_SACK_PERMITTED && size == 2)) {
		packet->says_more = 1;
	}
	scratch->option_at = at + size;
	return GO_ON;
}

// Reads the options from `from` on. (`bpf_loop` needs Linux 5.17.)
INLINE void read_options(struct scratch *scratch, u32 from, u32 options_at, u32 len)
{
	scratch->option_at = from;
	scratch->is_signed = scratch->is_multipath = 0;
#pragma clang loop unroll(disable)
	for (u32 n = 0; n < OPTIONS_MAX; n++) {
		if (READ_ONCE(scratch->option_at) >= len || read_option(scratch, options_at, len) == STOP)
			break;
	}
}

#define READ 0
#define ALONE 1 // not a packet of ours; counted where that matters

// Where TCP begins and where the packet ends, in the frame.
struct bounds {
	struct upper upper;
	u32 end;
	int has_options; // the IP header has options, or a length of 0
};

// Counts packets whose upper layer is not read, by UPPER_*.
INLINE int leave_alone_by(int kind)
{
	if (kind == UPPER_WHOLE)
		return READ;
	count(kind == UPPER_FRAGMENT ? ALONE_FRAGMENT : kind == UPPER_UNKNOWN ? ALONE_HEADER : ALONE_MALFORMED);
	return ALONE;
}

INLINE int read_ipv4(struct __sk_buff *skb, struct packet *packet, struct bounds *bounds, u8 *source, u8 *destination)
{
	u32 at = bounds->upper.at;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return ALONE;
	if (ip.protocol != IPPROTO_TCP)
		return ALONE;
	if (leave_alone_by(pass_ipv4(ip.version << 4 | ip.ihl, ip.frag_off, ip.protocol, &bounds->upper)) != READ)
		return ALONE;
	source[10] = source[11] = destination[10] = destination[11] = 0xff;
	__builtin_memcpy(source + 12, &ip.saddr, 4);
	__builtin_memcpy(destination + 12, &ip.daddr, 4);
	packet->ttl = ip.ttl;
	packet->traffic_class = ip.tos;
	bounds->end = at + bpf_ntohs(ip.tot_len);
	// The length of a GSO packet may not fit the field.
	bounds->has_options = ip.ihl != 5 || ip.tot_len == 0;
	if (ip.tot_len == 0 && skb->gso_segs > 1)
		bounds->end = skb->len;
	return READ;
}

INLINE int read_ipv6(struct __sk_buff *skb, struct packet *packet, struct bounds *bounds, u8 *source, u8 *destination)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, bounds->upper.at, &ip, sizeof(ip)))
		return ALONE;
	__builtin_memcpy(source, &ip.saddr, 16);
	__builtin_memcpy(destination, &ip.daddr, 16);
	packet->ttl = ip.hop_limit;
	packet->traffic_class = ip.priority << 4 | ip.flow_lbl[0] >> 4;
	bounds->upper.at += sizeof(ip);
	bounds->upper.protocol = ip.nexthdr;
	bounds->end = bounds->upper.at + bpf_ntohs(ip.payload_len);
	if (ip.payload_len == 0 && skb->gso_segs > 1)
		bounds->end = skb->len;
	bounds->has_options = ip.nexthdr != IPPROTO_TCP || ip.payload_len == 0;
	if (is_extension(ip.nexthdr) && leave_alone_by(pass_extensions(skb, &bounds->upper)) != READ)
		return ALONE;
	return bounds->upper.protocol == IPPROTO_TCP ? READ : ALONE;
}

INLINE int read_tcp(struct __sk_buff *skb, struct scratch *scratch, struct key *key, const struct bounds *bounds, int direction)
{
	struct packet *packet = &scratch->packet;
	u32 at = bounds->upper.at, end = bounds->end;
	u8 tcp[20];

	if (bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp))) {
		count(ALONE_MALFORMED);
		return ALONE;
	}
	u32 header_len = (tcp[12] >> 4) * 4;

	if (header_len < 20 || at + header_len > end || end > skb->len) {
		count(ALONE_MALFORMED);
		return ALONE;
	}
	u16 source_port, destination_port;

	__builtin_memcpy(&source_port, tcp, 2);
	__builtin_memcpy(&destination_port, tcp + 2, 2);
	key->local_port = direction == OUTGOING ? source_port : destination_port;
	key->remote_port = direction == OUTGOING ? destination_port : source_port;
	packet->seq = read_u32(tcp + 4);
	packet->ack = read_u32(tcp + 8);
	packet->flags = tcp[13];
	packet->window = (u16)tcp[14] << 8 | tcp[15];
	packet->len = end - at - header_len;
	packet->segment_size = skb->gso_size;
	packet->window_scale = UNKNOWN_SHIFT;
	scratch->offsets.tcp = at;
	u32 options_len = header_len - 20;

	if (!options_len)
		return READ;
	struct options *options = &scratch->options;

	if (options_len > OPTIONS_MAX)
		return ALONE;
	u32 wanted = options_len;

	// Verifiers before Linux 6.8 do not conclude from `!= 0` that it is at least 1, and the compiler must not know that it is.
	barrier_var(wanted);
	wanted = ((wanted - 1) & OPTIONS_MASK) + 1;
	if (bpf_skb_load_bytes(skb, at + 20, options->bytes, wanted)) {
		count(ALONE_MALFORMED);
		return ALONE;
	}
	u32 from = 0;

	// Most segments have these options and no others.
	if (options_len >= USUAL_OPTIONS_LEN && read_u32(options->bytes) == USUAL_OPTIONS) {
		packet->val = read_u32(options->bytes + 4);
		packet->ecr = read_u32(options->bytes + 8);
		packet->has_stamps = 1;
		scratch->offsets.stamps = at + 24;
		from = USUAL_OPTIONS_LEN;
	}
	if (from == options_len) {
		packet->is_plain = !bounds->has_options && tcp[12] == USUAL_OFFSET && (tcp[13] & ~PSH) == ACK;
		return READ;
	}
	read_options(scratch, from, at + 20, options_len);
	if (scratch->is_signed) {
		count(ALONE_SIGNED);
		return ALONE;
	}
	if (scratch->is_multipath) {
		count(ALONE_MULTIPATH);
		return ALONE;
	}
	return READ;
}

// Reads a packet into `scratch` and `key`. Returns READ, or ALONE for one that passes untouched.
INLINE int read_packet(struct __sk_buff *skb, struct scratch *scratch, struct key *key, int direction)
{
	struct bounds bounds = { .upper.at = rules.frame_len };
	u32 protocol = skb->protocol;
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;

	if (skb->vlan_present || protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		count(ALONE_VLAN);
		return ALONE;
	}
	if (protocol == bpf_htons(ETH_P_IP)) {
		if (read_ipv4(skb, &scratch->packet, &bounds, source, destination) != READ)
			return ALONE;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		if (read_ipv6(skb, &scratch->packet, &bounds, source, destination) != READ)
			return ALONE;
	} else {
		return ALONE;
	}
	return read_tcp(skb, scratch, key, &bounds, direction);
}
