// SPDX-License-Identifier: MIT OR GPL-2.0
//
// Connections that are already open.

#pragma once

static __always_inline int ends_of_sock(struct sock_common *sk, struct ends *ends)
{
	if (sk->skc_family == AF_INET) {
		ends->local[2] = ends->remote[2] = bpf_htonl(0xffff);
		ends->local[3] = sk->skc_rcv_saddr;
		ends->remote[3] = sk->skc_daddr;
	} else if (sk->skc_family == AF_INET6 && bpf_core_field_exists(sk->skc_v6_daddr)) {
		ends->local[0] = sk->skc_v6_rcv_saddr.words[0];
		ends->local[1] = sk->skc_v6_rcv_saddr.words[1];
		ends->local[2] = sk->skc_v6_rcv_saddr.words[2];
		ends->local[3] = sk->skc_v6_rcv_saddr.words[3];
		ends->remote[0] = sk->skc_v6_daddr.words[0];
		ends->remote[1] = sk->skc_v6_daddr.words[1];
		ends->remote[2] = sk->skc_v6_daddr.words[2];
		ends->remote[3] = sk->skc_v6_daddr.words[3];
	} else {
		return 0;
	}
	ends->local_port = sk->skc_num;
	ends->remote_port = bpf_ntohs(sk->skc_dport);
	return 1;
}

// The wish for a socket: user space's decision, else the cached wish, else the rules. Returns 0 if user space has not decided yet.
static __always_inline int wish_for(struct sock_common *sk, __u64 cookie, struct given *known, struct wish *wish)
{
	struct wish *answer = bpf_map_lookup_elem(&decisions, &cookie);
	struct ends ends = {};
	int verdict;

	if (answer) {
		*wish = *answer;
		return 1;
	}
	if (known && known->generation == generation()) {
		*wish = known->wish;
		return 1;
	}
	if (!ends_of_sock(sk, &ends))
		return 0;
	verdict = decide(&ends, wish);
	if (verdict == NEEDS_OWNER) {
		ask(cookie);
		return 0;
	}
	if (verdict == NOTHING_FITS)
		wish->action = LEAVE_ALONE;
	return 1;
}

// Tracks whether the peer answers window probes with a closed window.
static __always_inline void look_at_window(struct tcp_sock *tcp, struct given *given)
{
	if (!tcp->inet_conn.icsk_probes_tstamp)
		given->shut_since = 0;
	else if (!given->shut_since && tcp->inet_conn.icsk_probes_out <= 1)
		given->shut_since = bpf_ktime_get_ns();
}

SEC("iter/tcp")
int open_connections(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct given *on_socket;
	struct record record = {};
	struct wish wish = {};
	struct tcp_sock *tcp;
	__u32 zero = 0, *pass;
	int knows;

	if (!sk)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	pass = bpf_map_lookup_elem(&pass_in_progress, &zero);
	if (!tcp || !pass || !(1u << (sk->skc_state & 31) & STATES_WITH_DATA))
		return 0;
	record.cookie = bpf_get_socket_cookie(tcp);
	on_socket = bpf_sk_storage_get(&given, (void *)tcp, 0, 0);
	if (*pass == RESTORE) {
		if (on_socket) {
			take_back(tcp, tcp, on_socket);
			bpf_sk_storage_delete(&given, (void *)tcp);
		}
		return 0;
	}
	knows = wish_for(sk, record.cookie, on_socket, &wish);
	if (knows && !on_socket) {
		if (wish.action == LEAVE_ALONE && !bpf_map_lookup_elem(&decisions, &record.cookie) &&
		    tcp->inet_conn.icsk_user_timeout % 1000 != MARK_MS)
			return 0;
		on_socket = bpf_sk_storage_get(&given, (void *)tcp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	}
	if (!on_socket)
		return 0;
	if (knows) {
		on_socket->wish = wish;
		on_socket->generation = generation();
		if (wish.action == LEAVE_ALONE) {
			take_back(tcp, tcp, on_socket);
		} else {
			look_at_window(tcp, on_socket);
			give(tcp, tcp, on_socket, SET_OPEN);
		}
	}
	record.given = *on_socket;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
