// The programs on the gateway's mobile-facing interface: they note when mobile hosts send, divert packets for absent ones to the daemon,
// and run the flow path (crates/flow/c/flow.h) for their TCP connections.
//
// The programs send nothing and have no timer. User space reads notices from the rings `notices` and `flow_notices`, looks at the maps
// `mobiles` and `flows`, and changes them by running the programs `order` and `flow_order`. If user space hangs, `expires_at` passes, and
// from then on every packet passes as it is. Maps and programs go with the process that loaded them; if it was killed and they are pinned,
// they stay for the next one (crates/host/src/ebpf/pins.rs).

#include "gateway/state.h"

#include "gateway/flows.h"

#include "gateway/signs.h"

#include "gateway/split.h"

// The mobile host of an address, which is replaced by its name; 0 if it is not known.
INLINE struct mobile *mobile_of(struct address *address)
{
	if (has_prefixes)
		find_name(address);
	return bpf_map_lookup_elem(&mobiles, address);
}

// Reads the address of the mobile host's side from an IP header: the destination on the way out, the source on the way in. Returns whether
// the packet is one of a mobile host. Neighbour discovery is the link's own business (RFC 4861: types 133 to 137, without extension headers
// before them, RFC 6980): of most packets, nothing more is read than the address and, for IPv6, the first protocol.
INLINE int read_address(struct __sk_buff *skb, struct address *address, int is_out)
{
	u32 at = rules.frame_len;
	u8 protocol, type;

	if (skb->vlan_present || !read_ip_address(skb, at, address->words, is_out))
		return 0;
	if (!is_out || skb->protocol == bpf_htons(ETH_P_IP))
		return 1;
	if (bpf_skb_load_bytes(skb, at + AT(ipv6hdr, nexthdr), &protocol, 1))
		return 0;
	if (protocol != IPPROTO_ICMPV6)
		return 1;
	if (bpf_skb_load_bytes(skb, at + sizeof(struct ipv6hdr), &type, 1))
		return 0;
	return type < 133 || type > 137;
}

// The sender's IP address in an ARP packet, a request or an answer (RFC 826).
INLINE int read_arp_sender(struct __sk_buff *skb, struct address *address)
{
	u32 value;

	if (rules.frame_len != ETH_HLEN || skb->protocol != bpf_htons(ETH_P_ARP))
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + 14, &value, sizeof(value)) || !value)
		return 0;
	set_ipv4(address, value);
	return 1;
}

INLINE u64 time_of(const struct __sk_buff *skb)
{
	return rules.test_clock ? skb->tstamp : bpf_ktime_get_ns();
}

// Whether the daemon's device is there. The kernel removes it with a killed process; packets redirected to it after that would be lost.
INLINE int has_device(struct __sk_buff *skb)
{
	u32 mtu = 0;

	return bpf_check_mtu(skb, divert_to, &mtu, 0, 0) != NO_DEVICE;
}

// Whether a packet for a mobile host goes to the daemon's device, by the course of that host and by the rules.
static __attribute__((noinline)) int is_for_device_by(struct __sk_buff *skb, u32 course)
{
	// Most packets: nothing else is read of them.
	if (course == PASSING)
		return 0;
	return diverts(course, flow_rules_len ? find_rule_of_packet(skb, OUTGOING) : 0, course == DIVERT_TCP && is_tcp(skb));
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	struct address address;

	if (skb->mark && skb->mark == rules.mark_out) {
		skb->mark = 0;
		count(RELEASED);
		return PASS;
	}
	// Made by the daemon, as if it came from a mobile host.
	if (skb->mark && skb->mark == rules.mark_in)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	if (!read_address(skb, &address, 1))
		return PASS;
	struct mobile *mobile = mobile_of(&address);

	if (!mobile)
		return PASS;
	if (split.device && is_about_socket(skb))
		return bpf_redirect(split.device, BPF_F_INGRESS);
	// A packet of this router's own sockets has its socket with it.
	if (split.device && !skb->sk && may_split(skb, &address, OUTGOING) && begins_split(skb, 1))
		return bpf_redirect(split.device, 0);
	u64 now = time_of(skb), expires = expires_at();
	// Only packets that the daemon releases have the flag.
	int may_have_flag = sign_kind == SIGN_BY_FLAG && skb->protocol == bpf_htons(ETH_P_IP) && gives_signs(&address);
	int is_diverted = 0;

	FORGET(may_have_flag, mobile->heard_at);
	// A drop that is reported to this router's own TCP would count as congestion; a redirect to interface 0, which does not exist, is not
	// reported.
	if (withholds(skb, mobile, now, expires, OUTGOING))
		return bpf_redirect(0, 0);
	int is_for_device = is_for_device_by(skb, mobile->course);

	if (now >= expires || (is_for_device && !has_device(skb))) {
		if (is_for_device)
			count(EXPIRED);
		return PASS;
	}
	if (may_have_flag)
		take_flag(skb);
	if (is_for_device) {
		bpf_spin_lock(&mobile->lock);
		if (mobile->course != PASSING) {
			mobile->diverted++;
			is_diverted = 1;
		}
		bpf_spin_unlock(&mobile->lock);
	}
	if (is_diverted) {
		count(DIVERTED);
		return bpf_redirect(divert_to, 0);
	}
	count(PASSED);
	if (!mobile->waiting_since)
		mobile->waiting_since = now;
	return PASS;
}

// The host was heard: it is present, and nothing waits for its answer.
INLINE void note_heard(struct __sk_buff *skb, struct mobile *mobile, const struct address *address, u64 now)
{
	struct mac mac = {};

	mobile->heard_at = now;
	// Broadcasts, and frames to another router, are heard by every router of a segment.
	if (rules.frame_len != ETH_HLEN || skb->pkt_type == PACKET_HOST)
		mobile->addressed_at = now;
	mobile->waiting_since = 0;
	if (rules.frame_len == ETH_HLEN && !bpf_skb_load_bytes(skb, ETH_ALEN, &mac, ETH_ALEN) && mac_differs(&mobile->mac, &mac)) {
		bpf_spin_lock(&mobile->lock);
		mobile->mac = mac;
		bpf_spin_unlock(&mobile->lock);
	}
	if (mobile->course == PASSING || now - mobile->noticed_at < NOTICE_EVERY)
		return;
	mobile->noticed_at = now;
	struct mobile_notice *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);

	if (!notice) {
		count(NOTICE_LOST);
		return;
	}
	notice->at = now;
	notice->address = *address;
	notice->sign = SIGN_NONE;
	notice->unused = 0;
	bpf_ringbuf_submit(notice, 0);
}

// Whether an address belongs to mobile hosts, by the networks of the configuration.
INLINE int is_of_network(const struct address *address)
{
	return value_of_network(&networks, address) != 0;
}

SEC("classifier")
int ingress(struct __sk_buff *skb)
{
	struct address address;

	if (skb->mark && skb->mark == rules.mark_in) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	if (!read_arp_sender(skb, &address) && !read_address(skb, &address, 0))
		return PASS;
	struct mobile *mobile = mobile_of(&address);

	if (!mobile) {
		if (!is_of_network(&address))
			return PASS;
		u32 zero = 0;
		struct blank_mobile *anew = bpf_map_lookup_elem(&blank_mobiles, &zero);

		if (!anew)
			return PASS;
		bpf_map_update_elem(&mobiles, &address, anew, BPF_NOEXIST);
		mobile = mobile_of(&address);
		if (!mobile) {
			count(FULL);
			return PASS;
		}
	}
	u64 now = time_of(skb), expires = expires_at();

	count(HEARD);
	note_heard(skb, mobile, &address, now);
	if (sign_kind && now < expires && gives_signs(&address))
		note_sign(skb, mobile, &address, now);
	int is_split_syn = split.device && may_split(skb, &address, INCOMING) && begins_split(skb, 0);

	FORGET(is_split_syn, mobile->heard_at);
	// The flow table learns the window scale from SYNs that go to the daemon, too. SYNs of fixed hosts pass `egress` a second time, from a
	// socket of the daemon.
	int is_withheld = withholds(skb, mobile, now, expires, INCOMING);

	if (is_split_syn)
		return bpf_redirect(split.device, 0);
	return is_withheld ? TC_ACT_SHOT : PASS;
}

// User space runs this program on an order instead of a packet. Returns 0 if it was carried out.
SEC("classifier")
int order(struct __sk_buff *skb)
{
	struct mobile_order order;
	int is_refused = 0;

	if (bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return 1;
	struct mobile *mobile = mobile_of(&order.address);

	if (!mobile)
		return 2;
	if (order.kind == MOBILE_LINK) {
		bpf_spin_lock(&mobile->lock);
		mobile->links[order.number & (LINKS - 1)] = order.link;
		bpf_spin_unlock(&mobile->lock);
		return 0;
	}
	bpf_spin_lock(&mobile->lock);
	if (order.course == PASSING && mobile->diverted != order.diverted) {
		is_refused = 1;
	} else {
		mobile->course = order.course;
		mobile->noticed_at = 0;
		mobile->waiting_since = 0;
	}
	bpf_spin_unlock(&mobile->lock);
	return is_refused;
}

// The same on an order about a flow. Returns 0 if there is such a flow.
SEC("classifier")
int flow_order(struct __sk_buff *skb)
{
	struct order order;
	u32 zero = 0;

	if (bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return 1;
	struct current *current = bpf_map_lookup_elem(&currents, &zero);
	struct flow *flow = bpf_map_lookup_elem(&flows, &order.key);

	if (order.kind == ORDER_COMPACT)
		return !remove_details(&order.key);
	if (!flow && add_details(&order.key, FOR_ORDERS))
		flow = bpf_map_lookup_elem(&flows, &order.key);
	if (!flow || !current)
		return 1;
	bpf_spin_lock(&flow->lock);
	handle_order(flow, &order, &current->none[0], &current->none[1]);
	bpf_spin_unlock(&flow->lock);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
