// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The timeout of a socket: computing, setting and restoring it.

#pragma once

// RFC 5482 section 2.
static __always_inline __u32 ms_of_option(__u16 wire)
{
	__u32 value = wire & ~UTO_MINUTES;

	return wire & UTO_MINUTES ? value * 60000 : value * 1000;
}

// How long keep-alive tolerates a silent peer, in ms; 0 without keep-alive. `ctx` is the context that the helper takes in the
// calling kind of program.
static __always_inline __u32 keep_alive_ms(void *ctx)
{
	int on = 0, idle = 0, interval = 0, probes = 0;

	if (bpf_getsockopt(ctx, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) || !on ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)) ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_KEEPCNT, &probes, sizeof(probes)))
		return 0;
	return ((__u32)idle + (__u32)interval * (__u32)probes) * 1000;
}

static __always_inline int has_usec_timestamps(struct tcp_sock *tcp)
{
	return bpf_core_field_exists(tcp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tcp, tcp_usec_ts);
}

// The timeout to set on a socket, in ms.
static __always_inline __u32 wanted_ms(void *ctx, struct tcp_sock *tcp, const struct given *given)
{
	__u32 wanted = given->wish.timeout_ms, peers = given->peer_ms;

	// RFC 5482 section 3.1: min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)), where the own timeout is never lowered.
	if (peers > given->wish.accept_ms)
		peers = given->wish.accept_ms;
	if (peers > wanted)
		wanted = peers;
	if (given->wish.action == HOLD) {
		// With a user timeout the kernel gives up at the first unanswered keep-alive probe instead of after several.
		__u32 keep_alive = keep_alive_ms(ctx);

		if (keep_alive > wanted)
			wanted = keep_alive;
		// A user timeout also ends a connection whose peer answers window probes with a closed window, which the kernel alone
		// never does. So the timeout is extended while that lasts.
		if (given->shut_since)
			wanted += (bpf_ktime_get_ns() - given->shut_since) / 1000000 + pass_interval_ms;
	}
	wanted = wanted / 1000 * 1000 + MARK_MS;
	if (has_usec_timestamps(tcp) && wanted > LONGEST_WITH_USEC_TS_MS)
		wanted = LONGEST_WITH_USEC_TS_MS;
	return wanted;
}

// Sets the timeout of a socket.
static __always_inline void give(void *ctx, struct tcp_sock *tcp, struct given *given, __u32 counter)
{
	__u32 has = tcp->inet_conn.icsk_user_timeout, wanted;
	int ms;

	if (has % 1000 == MARK_MS && !given->set_ms)
		// Set by an earlier agent.
		given->set_ms = has;
	if (has != given->set_ms) {
		if (!given->wish.replace) {
			if (!given->is_applications)
				count(APPLICATIONS_OWN);
			given->is_applications = 1;
			given->set_ms = 0;
			return;
		}
		given->before_ms = has;
	}
	given->is_applications = 0;
	wanted = wanted_ms(ctx, tcp, given);
	if (has == wanted)
		return;
	ms = wanted;
	if (bpf_setsockopt(ctx, SOL_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms))) {
		count(REFUSED);
		return;
	}
	given->set_ms = wanted;
	count(counter);
}

// Restores the timeout that the socket had before.
static __always_inline void take_back(void *ctx, struct tcp_sock *tcp, struct given *given)
{
	__u32 has = tcp->inet_conn.icsk_user_timeout;
	int ms = given->before_ms;

	if (has != given->set_ms && has % 1000 != MARK_MS)
		return;
	if (has && bpf_setsockopt(ctx, SOL_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)))
		count(REFUSED);
	given->set_ms = 0;
}

static __always_inline void ask(__u64 cookie)
{
	if (bpf_ringbuf_output(&questions, &cookie, sizeof(cookie), 0))
		count(NOT_ASKED);
	else
		count(ASKED);
}

static __always_inline __u32 generation(void)
{
	__u32 zero = 0;
	__u32 *in_use = bpf_map_lookup_elem(&table_in_use, &zero);

	return in_use ? *in_use : 0;
}
