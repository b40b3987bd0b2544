// Header prediction on a packet. Most packets of a fast transfer end here, so that nothing is called or copied to read them (parse.h needs
// three calls): the headers are looked at in place, where the kernel has them in one piece. A packet with any other IP header, such as one
// with options or extension headers, is read by parse.h.

#pragma once

#include "ip.h"
#include "maps.h"

#include "header_prediction.h"

// The TCP header of a plain segment (`is_plain` of `struct packet`), with `key` and the length of its data; 0 for any other packet.
INLINE const struct plain *plain_segment(const struct __sk_buff *skb, u32 frame_len, struct key *key, int direction, u32 *len)
{
	const u8 *ip = (const u8 *)(long)skb->data + frame_len, *end = (const u8 *)(long)skb->data_end;
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;
	const struct plain *tcp;
	u32 total;

	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		const struct iphdr *header = (const struct iphdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || ip[0] != 0x45 || header->protocol != IPPROTO_TCP ||
		    header->frag_off & bpf_htons(IP_FRAGMENT))
			return 0;
		total = bpf_ntohs(header->tot_len);
		*len = total - sizeof(*header) - sizeof(*tcp);
		source[10] = source[11] = destination[10] = destination[11] = 0xff;
		__builtin_memcpy(source + 12, &header->saddr, 4);
		__builtin_memcpy(destination + 12, &header->daddr, 4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		const struct ipv6hdr *header = (const struct ipv6hdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || header->nexthdr != IPPROTO_TCP)
			return 0;
		total = bpf_ntohs(header->payload_len) + sizeof(*header);
		*len = total - sizeof(*header) - sizeof(*tcp);
		__builtin_memcpy(source, &header->saddr, 16);
		__builtin_memcpy(destination, &header->daddr, 16);
	} else {
		return 0;
	}
	// A length shorter than the headers has wrapped around.
	if (*len > 0xffff || frame_len + total > skb->len)
		return 0;
	if ((tcp->offset_and_flags & ~bpf_htons(PSH)) != bpf_htons(USUAL_OFFSET << 8 | ACK) || tcp->options != bpf_htonl(USUAL_OPTIONS))
		return 0;
	*(direction == OUTGOING ? &key->local_port : &key->remote_port) = tcp->ports[0];
	*(direction == OUTGOING ? &key->remote_port : &key->local_port) = tcp->ports[1];
	return tcp;
}

// Whether header prediction takes a packet. A global function, so that the verifier need not follow its states through all the rest.
__attribute__((noinline)) int is_predicted(struct __sk_buff *skb, int direction)
{
	KEY key = {};
	u64 status = status_now();
	u32 len;

	if (!link_is_calm(status, family_of(skb)))
		return 0;
	const struct plain *tcp = plain_segment(skb, status & STATUS_FRAMES ? FRAME_LEN : 0, &key, direction, &len);

	if (!tcp)
		return 0;
	u32 number = prediction_number(&key, direction);
	struct prediction *prediction = prediction_at(number);

	if (!prediction || !is_active(prediction, &key))
		return 0;
	if (!note_if_predicted(prediction, number, tcp, len, skb->gso_size, direction))
		return 0;
	count(direction == OUTGOING ? PREDICTED : PREDICTED_IN);
	return 1;
}
