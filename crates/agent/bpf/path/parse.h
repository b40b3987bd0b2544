// Reads a packet: Ethernet, IPv4 or IPv6 with extension headers, TCP and its options.

#pragma once

INLINE u32 read_u32(const u8 *bytes)
{
	return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

#define OPTIONS_MAX 40
#define OPTIONS_MASK 63 // what has room for them, and itself in `struct options`

struct options {
	u8 bytes[OPTIONS_MAX + 40]; // so that what begins in the first part ends in the second
};

struct scratch {
	struct options options;
	u32 option_at; // how far they are read
	u32 unused;
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

// One option, as RFC 9293 section 3.1 has them; those of wrong length are skipped. They begin at `options_at` in the packet, and are
// `len` bytes.
INLINE int read_option(struct scratch *scratch, u32 options_at, u32 len)
{
	struct packet *packet = &scratch->packet;
	u32 at = *(volatile u32 *)&scratch->option_at;

	if (at >= len || at >= OPTIONS_MAX)
		return STOP;
	const u8 *option = scratch->options.bytes + at;
	u8 kind = option[0];

	if (kind == 0)
		return STOP;
	if (kind == 1) {
		scratch->option_at = at + 1;
		return GO_ON;
	}
	u32 size = at + 1 < len ? option[1] : 0;

	if (size < 2 || at + size > len) {
		packet->says_more = 1;
		return STOP;
	}
	if (kind == 8 && size == 10) {
		packet->val = read_u32(option + 2);
		packet->ecr = read_u32(option + 6);
		packet->stamps_at = options_at + at + 2;
	} else if (kind == 5 && size >= 10 && size <= 34 && (size & 7) == 2) {
		packet->sack_len = size >> 3;
		u32 number = packet->sacks & (MOST_BLOCKS - 1);

		packet->sack_at[number] = options_at + at;
		packet->sack_bytes[number] = size;
		packet->sacks = number + 1;
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++) {
			int is_there = n < packet->sack_len;

			packet->sack[n].start = is_there ? read_u32(option + 2 + 8 * n) : 0;
			packet->sack[n].end = is_there ? read_u32(option + 6 + 8 * n) : 0;
		}
	} else if (kind == 3 && size == 3) {
		packet->window_scale = option[2] > 14 ? 14 : option[2];
	} else if (!(kind == 2 && size == 4) && !(kind == 4 && size == 2)) {
		packet->says_more = 1;
	}
	scratch->option_at = at + size;
	return GO_ON;
}

// The options in `scratches`. A function that verifiers look at by itself, and whose state is in a map, which they do not follow: so all
// turns of the loop are alike to them. (`bpf_loop` needs Linux 5.17.)
__attribute__((noinline)) int read_options(u32 options_at, u32 len)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

	if (!scratch)
		return 0;
	scratch->option_at = 0;
#pragma clang loop unroll(disable)
	for (u32 n = 0; n < OPTIONS_MAX; n++) {
		if (read_option(scratch, options_at, len) == STOP)
			break;
	}
	return 0;
}

#define READ 0
#define ALONE 1

// Reads what the twin reads of a packet. Returns READ, or ALONE for what is none of ours; that is counted.
INLINE int read_packet(struct __sk_buff *skb, struct scratch *scratch, struct key *key, int direction)
{
	struct packet *packet = &scratch->packet;
	u32 at = rules.frame_len;
	u32 protocol = skb->protocol;
	u32 end;
	u8 next;
	int has_options = 0;

	if (skb->vlan_present || protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		count(ALONE_VLAN);
		return ALONE;
	}
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;

	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return ALONE;
		if (ip.protocol != IPPROTO_TCP)
			return ALONE;
		if (ip.frag_off & bpf_htons(0x3fff)) {
			count(ALONE_FRAGMENT);
			return ALONE;
		}
		if (ip.version != 4 || ip.ihl < 5) {
			count(ALONE_MALFORMED);
			return ALONE;
		}
		source[10] = source[11] = destination[10] = destination[11] = 0xff;
		__builtin_memcpy(source + 12, &ip.saddr, 4);
		__builtin_memcpy(destination + 12, &ip.daddr, 4);
		packet->ttl = ip.ttl;
		packet->traffic_class = ip.tos;
		end = at + bpf_ntohs(ip.tot_len);
		// The length of what stands for several may not fit.
		has_options = ip.ihl != 5 || ip.tot_len == 0;
		if (ip.tot_len == 0 && skb->gso_segs > 1)
			end = skb->len;
		at += ip.ihl * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return ALONE;
		__builtin_memcpy(source, &ip.saddr, 16);
		__builtin_memcpy(destination, &ip.daddr, 16);
		packet->ttl = ip.hop_limit;
		packet->traffic_class = ip.priority << 4 | ip.flow_lbl[0] >> 4;
		at += sizeof(ip);
		end = at + bpf_ntohs(ip.payload_len);
		if (ip.payload_len == 0 && skb->gso_segs > 1)
			end = skb->len;
		next = ip.nexthdr;
		has_options = next != IPPROTO_TCP || ip.payload_len == 0;
#pragma unroll
		for (int n = 0; n < 6; n++) {
			u8 header[8];

			if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_ROUTING)
				break;
			if (bpf_skb_load_bytes(skb, at, header, sizeof(header))) {
				count(ALONE_MALFORMED);
				return ALONE;
			}
			// One that is still on its way has another destination.
			if (next == IPPROTO_ROUTING && header[3]) {
				count(ALONE_HEADER);
				return ALONE;
			}
			next = header[0];
			at += 8 + header[1] * 8;
		}
		if (next == IPPROTO_FRAGMENT) {
			count(ALONE_FRAGMENT);
			return ALONE;
		}
		if (next == IPPROTO_HOPOPTS || next == IPPROTO_DSTOPTS || next == IPPROTO_ROUTING) {
			count(ALONE_HEADER);
			return ALONE;
		}
		if (next != IPPROTO_TCP)
			return ALONE;
	} else {
		return ALONE;
	}

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
	packet->tcp_at = at;
	packet->window_scale = UNKNOWN_SHIFT;
	u32 options_len = header_len - 20;

	if (options_len) {
		struct options *options = &scratch->options;

		if (options_len > OPTIONS_MAX)
			return ALONE;
		u32 wanted = options_len;

		// Verifiers before Linux 6.8 do not conclude from `!= 0` that it is at least 1; and the compiler must not know that it is.
		barrier_var(wanted);
		wanted = ((wanted - 1) & OPTIONS_MASK) + 1;
		if (bpf_skb_load_bytes(skb, at + 20, options->bytes, wanted)) {
			count(ALONE_MALFORMED);
			return ALONE;
		}
		// What most segments have, and no more.
		if (options_len == USUAL_OPTIONS_LEN && read_u32(options->bytes) == USUAL_OPTIONS) {
			packet->is_plain = !has_options && tcp[12] == USUAL_OFFSET && (tcp[13] & ~PSH) == ACK;
			packet->val = read_u32(options->bytes + 4);
			packet->ecr = read_u32(options->bytes + 8);
			packet->stamps_at = at + 24;
			return READ;
		}
		read_options(at + 20, options_len);
	}
	return READ;
}
