// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The rule table: the first matching rule applies. selector.h, which user space calls, too, decides whether a rule matches.

#pragma once

// Whether a rule fits. A global function, which verifiers check by itself, once, and not for each rule.
__noinline int try_rule(const struct ends *ends, struct wish *wish, __u32 number, int within_host)
{
	struct rule *rule = bpf_map_lookup_elem(&rules, &number);

	if (!ends || !wish || !rule || !selects(&rule->selector, ends, within_host))
		return NOTHING_FITS;
	*wish = rule->wish;
	return rule->needs_owner ? NEEDS_OWNER : FITS;
}

// Finds the first matching rule.
__noinline int decide(const struct ends *ends, struct wish *wish)
{
	__u32 zero = 0, table, i, number, within_host;
	__u32 *in_use, *count;

	if (!ends || !wish)
		return NOTHING_FITS;
	in_use = bpf_map_lookup_elem(&table_in_use, &zero);
	if (!in_use)
		return NOTHING_FITS;
	table = *in_use & 1;
	count = bpf_map_lookup_elem(&rule_counts, &table);
	if (!count)
		return NOTHING_FITS;
	number = *count;
	within_host = is_within_host(ends);
	for (i = 0; i < MAX_RULES; i++) {
		int verdict;

		if (i >= number)
			break;
		verdict = try_rule(ends, wish, table * MAX_RULES + i, within_host);
		if (verdict != NOTHING_FITS)
			return verdict;
	}
	return NOTHING_FITS;
}
