// SPDX-License-Identifier: MIT OR GPL-2.0
//
// Connections at their handshake, and the User Timeout option (RFC 5482).

#pragma once

#define OPTION_CALLBACKS (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG)

static __always_inline void call_back(struct bpf_sock_ops *ops, __u32 flags)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | flags);
}

static __always_inline void call_back_no_more(struct bpf_sock_ops *ops, __u32 flags)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~flags);
}

// The verifier accepts reads of the context at constant offsets of fields only; the barrier keeps the compiler from merging reads.
#define FIELD(field)                     \
	({                               \
		__u32 value = ops->field; \
		barrier_var(value);      \
		value;                   \
	})

static __always_inline void ends_of_ops(struct bpf_sock_ops *ops, struct ends *ends)
{
	if (ops->family == AF_INET) {
		ends->local[2] = ends->remote[2] = bpf_htonl(0xffff);
		ends->local[3] = FIELD(local_ip4);
		ends->remote[3] = FIELD(remote_ip4);
	} else {
		ends->local[0] = FIELD(local_ip6[0]);
		ends->local[1] = FIELD(local_ip6[1]);
		ends->local[2] = FIELD(local_ip6[2]);
		ends->local[3] = FIELD(local_ip6[3]);
		ends->remote[0] = FIELD(remote_ip6[0]);
		ends->remote[1] = FIELD(remote_ip6[1]);
		ends->remote[2] = FIELD(remote_ip6[2]);
		ends->remote[3] = FIELD(remote_ip6[3]);
	}
	ends->local_port = FIELD(local_port);
	ends->remote_port = bpf_ntohl(FIELD(remote_port));
}

// Reads the peer's option from the current segment.
static __always_inline int take_option(struct bpf_sock_ops *ops, struct given *given)
{
	__u8 option[UTO_LEN] = { UTO_KIND };
	__u32 ms;

	if (bpf_load_hdr_opt(ops, option, sizeof(option), 0) != UTO_LEN)
		return 0;
	ms = ms_of_option((__u16)option[2] << 8 | option[3]);
	// RFC 5482 section 3.5: zero is reserved, and ignored.
	if (!ms)
		return 0;
	count(OPTIONS_RECEIVED);
	given->peer_ms = ms;
	return 1;
}

// A SYN is about to be sent. It may carry the option (RFC 5482 section 3.1).
static __always_inline void connecting(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct ends ends = {};
	struct wish wish = {};
	struct given *on_socket;

	ends_of_ops(ops, &ends);
	if (decide(&ends, &wish) != FITS || !wish.advertise)
		return;
	on_socket = bpf_sk_storage_get(&given, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!on_socket)
		return;
	on_socket->wish = wish;
	on_socket->generation = generation();
	call_back(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static __always_inline void established(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct ends ends = {};
	struct wish wish = {};
	struct given *on_socket;
	struct tcp_sock *tcp;
	int verdict;

	ends_of_ops(ops, &ends);
	verdict = decide(&ends, &wish);
	if (verdict == NEEDS_OWNER) {
		ask(bpf_get_socket_cookie(ops));
		// The answer may ask for the option, and these callbacks cannot be requested from the iterator.
		if (wish.advertise)
			call_back(ops, OPTION_CALLBACKS);
		return;
	}
	if (verdict != FITS || wish.action == LEAVE_ALONE)
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	on_socket = bpf_sk_storage_get(&given, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!tcp || !on_socket) {
		count(REFUSED);
		return;
	}
	on_socket->wish = wish;
	on_socket->generation = generation();
	// Segments after the SYN are counted anew.
	on_socket->segments_with_option = 0;
	if (wish.advertise) {
		call_back(ops, OPTION_CALLBACKS);
		take_option(ops, on_socket);
	}
	give(ops, tcp, on_socket, SET);
}

// Reserves room for the option.
static __always_inline void option_length(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);

	if (!on_socket)
		// User space has not decided yet.
		return;
	if (ops->state == STATE_SYN_SENT) {
		// A retransmitted SYN goes without the option: a middlebox may have dropped the first for it.
		if (on_socket->wish.advertise && !ops->total_retrans)
			bpf_reserve_hdr_opt(ops, UTO_LEN, 0);
		return;
	}
	if (!on_socket->wish.advertise) {
		call_back_no_more(ops, OPTION_CALLBACKS);
		return;
	}
	if (on_socket->segments_with_option >= UTO_SEGMENTS ||
	    (on_socket->segments_with_option && (__s32)(ops->snd_una - on_socket->advertised_to) > 0)) {
		call_back_no_more(ops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		return;
	}
	bpf_reserve_hdr_opt(ops, UTO_LEN, 0);
}

static __always_inline void write_option(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);
	__u8 option[UTO_LEN] = { UTO_KIND, UTO_LEN };

	if (!on_socket || !on_socket->wish.advertise)
		return;
	option[2] = on_socket->wish.advertise >> 8;
	option[3] = on_socket->wish.advertise & 0xff;
	if (bpf_store_hdr_opt(ops, option, sizeof(option), 0))
		return;
	if (ops->state != STATE_SYN_SENT) {
		if (!on_socket->segments_with_option)
			on_socket->advertised_to = ops->snd_nxt;
		on_socket->segments_with_option++;
	}
	count(OPTIONS_SENT);
}

static __always_inline void segment_with_unknown_option(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct given *on_socket = bpf_sk_storage_get(&given, sk, 0, 0);
	struct tcp_sock *tcp;

	if (!on_socket || !on_socket->wish.advertise || !take_option(ops, on_socket))
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp && on_socket->wish.action != LEAVE_ALONE)
		give(ops, tcp, on_socket, SET);
}

SEC("sockops")
int new_connections(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (!sk || (ops->family != AF_INET && ops->family != AF_INET6))
		return 1;
	if (netns_cookie && bpf_get_netns_cookie(ops) != netns_cookie)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		connecting(ops, sk);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(ops, sk);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		option_length(ops, sk);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write_option(ops, sk);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		segment_with_unknown_option(ops, sk);
		break;
	}
	return 1;
}
