// Programs to compare the gateway's with: what a hook costs whose program does nothing, and a host that discards what it gets.

#include "kernel.h"

#define PASS -1 // TCX_NEXT: the next program of the hook runs

SEC("classifier")
int pass(struct __sk_buff *skb)
{
	return PASS;
}

// Address resolution goes on.
SEC("classifier")
int discard(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IP) ? TC_ACT_SHOT : PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
