//! The claims of a paper that hold together at one setting, from the verdicts of a survey and those of the page.
//!
//! A paper of whose claims too few hold at the setting where they are judged may have no better one. [`Together`] has the evidence: the
//! claims that hold at no setting tried, the greatest number that holds at one, also of each experiment by itself, and the pairs of claims
//! that never hold at the same.

use std::collections::BTreeMap;

use holdover_scenario::statistics::holm;
use serde::Serialize;

use super::judge::{Judged, Verdict};
use super::open::Open;
use super::setting::Setting;
use super::survey::Survey;

/// The share of a paper's checkable claims that a reproduction is to meet at one setting, as a fraction.
const SHARE: (usize, usize) = (3, 4);

/// The probability below which an event counts as unlikely.
pub const UNLIKELY: f64 = 0.05;

/// The claims that hold together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Together {
    /// The number of claims with a verdict.
    pub claims: usize,
    /// The number that is to hold at one setting.
    pub wanted: usize,
    /// The number that holds at the setting where they are judged.
    pub judged: usize,
    /// The number of settings of the survey.
    pub settings: usize,
    /// Whether the survey has every combination of values.
    pub complete: bool,
    /// The claims that hold at no setting.
    pub nowhere: Vec<String>,
    /// The greatest number of claims that hold at one setting of the survey.
    pub most: usize,
    /// The first setting with that number.
    pub at: Setting,
    /// The experiments with claims, in the page's order.
    pub parts: Vec<Part>,
    /// The size of the largest set of claims without a pair of [`Self::pairs`]; `None` if there are too many claims to compute it.
    pub compatible: Option<usize>,
    /// The same without a pair that chance is unlikely to keep apart ([`Pair::is_unlikely`]).
    pub compatible_beyond_chance: Option<usize>,
    /// The number of pairs of claims that each hold at some setting.
    pub compared: usize,
    /// Pairs that hold together at no setting of the survey or of the page; those least likely by chance first.
    pub pairs: Vec<Pair>,
}

/// The claims of one experiment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Part {
    /// The experiment.
    pub experiment: String,
    /// The number of its claims with a verdict.
    pub claims: usize,
    /// The number that holds at no setting.
    pub nowhere: usize,
    /// The greatest number that holds at one setting, of the survey or of the page.
    pub most: usize,
    /// The number that holds at the setting of the page.
    pub judged: usize,
}

/// Two claims that never hold at the same setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    /// The claims.
    pub claims: [String; 2],
    /// The number of settings at which each holds.
    pub holds: [usize; 2],
    /// The probability that settings drawn at random for each, in these numbers, have none in common.
    pub chance: f64,
    /// The same, corrected for the number of pairs compared (Holm 1979).
    pub corrected: f64,
}

impl Pair {
    fn is_of(&self, a: &str, b: &str) -> bool {
        let [one, other] = &self.claims;
        (one == a && other == b) || (one == b && other == a)
    }

    /// Whether chance is unlikely to keep its claims apart, or any other pair's.
    pub fn is_unlikely(&self) -> bool {
        self.corrected < UNLIKELY
    }
}

impl Together {
    /// Compares the verdicts of the page with those of the survey; `None` if the survey lacks one of the page's claims.
    pub fn new(survey: &Survey, judged: &[Judged], inputs: &[Open]) -> Option<Self> {
        let settings = survey.settings.len();
        let mut columns: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for claim in judged.iter().filter(|claim| claim.verdict != Verdict::NotCheckable) {
            let letters = survey.verdicts.get(&claim.id)?;
            // The last column is the setting where the claims are judged.
            let mut holds: Vec<bool> = letters.chars().map(|letter| letter == '+').collect();
            if holds.len() != settings {
                return None;
            }
            holds.push(claim.verdict == Verdict::Holds);
            columns.insert(&claim.id, holds);
        }
        let count = |setting: usize| columns.values().filter(|holds| holds[setting]).count();
        let best = (0..settings).rev().max_by_key(|&setting| count(setting))?;
        let parts = parts(judged, &columns);
        let (nowhere, somewhere): (Vec<_>, Vec<_>) = columns.iter().partition(|(_, holds)| !holds.contains(&true));
        let somewhere: Vec<(&str, &[bool])> =
            somewhere.into_iter().map(|(claim, holds)| (*claim, holds.as_slice())).collect();
        let pairs = pairs(&somewhere);
        Some(Self {
            claims: columns.len(),
            wanted: (columns.len() * SHARE.0).div_ceil(SHARE.1),
            judged: count(settings),
            settings,
            complete: survey.is_complete(inputs),
            nowhere: nowhere.into_iter().map(|(claim, _)| (*claim).to_owned()).collect(),
            most: count(best),
            at: survey.settings[best].clone(),
            parts,
            compatible: compatible(&somewhere, exclude),
            compatible_beyond_chance: compatible(&somewhere, |a, b| {
                pairs.iter().any(|pair| pair.is_unlikely() && pair.is_of(a.0, b.0))
            }),
            compared: somewhere.len() * somewhere.len().saturating_sub(1) / 2,
            pairs,
        })
    }

    /// Whether fewer claims than wanted hold where they are judged.
    pub const fn falls_short(&self) -> bool {
        self.judged < self.wanted
    }

    /// Whether as many claims as wanted hold at one setting of the survey.
    pub const fn is_met(&self) -> bool {
        self.most >= self.wanted
    }

    /// The share of the ranges that settings with enough claims could fill and yet be missed by as many independent settings as the survey
    /// has, with a probability of [`UNLIKELY`].
    pub fn share_missed(&self) -> f64 {
        1.0 - UNLIKELY.powf(1.0 / self.settings as f64)
    }

    /// The greatest number of claims that would hold if each experiment had a setting of its own, of those tried.
    pub fn apart(&self) -> usize {
        self.parts.iter().map(|part| part.most).sum()
    }

    /// The number of claims that hold at some setting.
    pub fn somewhere(&self) -> usize {
        self.claims - self.nowhere.len()
    }
}

/// The claims of each experiment, of those with a column.
fn parts(judged: &[Judged], columns: &BTreeMap<&str, Vec<bool>>) -> Vec<Part> {
    let mut experiments: Vec<(&str, Vec<&[bool]>)> = Vec::new();
    for claim in judged {
        let Some(column) = columns.get(claim.id.as_str()) else { continue };
        match experiments.iter_mut().find(|(experiment, _)| *experiment == claim.experiment) {
            Some((_, claims)) => claims.push(column),
            None => experiments.push((&claim.experiment, vec![column])),
        }
    }
    let part = |(experiment, claims): (&str, Vec<&[bool]>)| {
        let settings = claims.iter().map(|holds| holds.len()).min().unwrap_or_default();
        let count = |setting: usize| claims.iter().filter(|holds| holds[setting]).count();
        Part {
            experiment: experiment.to_owned(),
            claims: claims.len(),
            nowhere: claims.iter().filter(|holds| !holds.contains(&true)).count(),
            most: (0..settings).map(count).max().unwrap_or_default(),
            judged: settings.checked_sub(1).map_or(0, count),
        }
    };
    experiments.into_iter().map(part).collect()
}

/// A claim, and whether it holds at each setting.
type Column<'a> = (&'a str, &'a [bool]);

fn exclude((_, a): Column<'_>, (_, b): Column<'_>) -> bool {
    !a.iter().zip(b).any(|(a, b)| *a && *b)
}

fn pairs(somewhere: &[Column<'_>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    // A pair with a common setting counts as certain to be apart by chance, which makes the correction stronger.
    let mut chances = Vec::new();
    for (index, &one) in somewhere.iter().enumerate() {
        for &other in &somewhere[index + 1..] {
            if !exclude(one, other) {
                chances.push(Some(1.0));
                continue;
            }
            let holds = [one, other].map(|(_, holds)| holds.iter().filter(|holds| **holds).count());
            let chance = apart_by_chance(one.1.len(), holds[0], holds[1]);
            pairs.push((
                chances.len(),
                Pair { claims: [one.0, other.0].map(str::to_owned), holds, chance, corrected: 1.0 },
            ));
            chances.push(Some(chance));
        }
    }
    let corrected = holm(&chances);
    for (index, pair) in &mut pairs {
        pair.corrected = corrected[*index].unwrap_or(1.0);
    }
    let mut pairs: Vec<Pair> = pairs.into_iter().map(|(_, pair)| pair).collect();
    pairs.sort_by(|a, b| a.chance.total_cmp(&b.chance));
    pairs
}

/// The probability that `b` of `all` settings drawn at random miss `a` given ones (hypergeometric).
fn apart_by_chance(all: usize, a: usize, b: usize) -> f64 {
    (0..b).map(|drawn| all.saturating_sub(a + drawn) as f64 / (all - drawn) as f64).product()
}

/// The size of the largest set of claims without two that exclude each other; `None` for more claims than bits in a set.
fn compatible(somewhere: &[Column<'_>], exclude: impl Fn(Column<'_>, Column<'_>) -> bool) -> Option<usize> {
    let bit = |index: usize| 1_u128 << index;
    if somewhere.len() > u128::BITS as usize {
        return None;
    }
    let excluded = |claim: &Column<'_>| {
        let others = somewhere.iter().enumerate().filter(|(_, other)| exclude(*claim, **other));
        others.fold(0, |set, (index, _)| set | bit(index))
    };
    let graph: Vec<u128> = somewhere.iter().map(excluded).collect();
    let all = (0..graph.len()).fold(0, |set, index| set | bit(index));
    let mut steps = STEPS;
    independent(&graph, all, &mut steps)
}

/// The number of steps after which the search for the largest set is given up.
const STEPS: u32 = 1_000_000;

/// The size of the largest subset of `among` without an edge of `graph`; `None` when `steps` are used up.
fn independent(graph: &[u128], among: u128, steps: &mut u32) -> Option<usize> {
    *steps = steps.checked_sub(1)?;
    let members = (0..graph.len()).filter(|&member| (among >> member) & 1 == 1);
    let Some(busiest) = members.max_by_key(|&member| (graph[member] & among).count_ones()) else { return Some(0) };
    if graph[busiest] & among == 0 {
        return Some(among.count_ones() as usize);
    }
    let without = among & !(1 << busiest);
    let with = independent(graph, without & !graph[busiest], steps)? + 1;
    Some(with.max(independent(graph, without, steps)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A survey with these verdicts, and the verdicts of the page.
    fn compared(verdicts: &[(&str, &str, Verdict)]) -> Option<Together> {
        compared_in(
            &verdicts.iter().map(|(claim, letters, verdict)| (*claim, "fig", *letters, *verdict)).collect::<Vec<_>>(),
        )
    }

    /// The same with an experiment for each claim.
    fn compared_in(verdicts: &[(&str, &str, &str, Verdict)]) -> Option<Together> {
        let settings = verdicts[0].2.len();
        let survey = Survey {
            command: "again".to_owned(),
            samples: settings as u32,
            runs: 1,
            seed: 1,
            inputs: BTreeMap::new(),
            settings: (0..settings as i64).map(|at| Setting([("x".to_owned(), at.into())].into())).collect(),
            verdicts: verdicts
                .iter()
                .map(|(claim, _, letters, _)| ((*claim).to_owned(), (*letters).to_owned()))
                .collect(),
        };
        let judged: Vec<Judged> =
            verdicts.iter().map(|(claim, experiment, _, verdict)| judged(claim, experiment, *verdict)).collect();
        Together::new(&survey, &judged, &[])
    }

    fn judged(claim: &str, experiment: &str, verdict: Verdict) -> Judged {
        Judged {
            id: claim.to_owned(),
            experiment: experiment.to_owned(),
            text: String::new(),
            verdict,
            strict: None,
            found: String::new(),
            in_part: None,
            cause: None,
            note: None,
            explanation: None,
            over_open: None,
        }
    }

    #[test]
    fn claims_that_never_hold_and_never_hold_together_are_found() {
        use Verdict::{Fails, Holds};
        let found = compared(&[
            ("always", "++++", Holds),
            ("early", "++--", Fails),
            ("late", "--+-", Fails),
            ("last", "---+", Holds),
            ("never", "----", Fails),
            ("unclear", "?---", Fails),
        ])
        .expect("a survey of all claims");
        assert_eq!((found.claims, found.wanted, found.judged), (6, 5, 2));
        assert!(found.falls_short());
        assert_eq!(found.nowhere, ["never", "unclear"]);
        assert_eq!((found.most, found.at.in_words().as_str()), (2, "x = 0"), "the first of several");
        let pairs: Vec<[&str; 2]> = found.pairs.iter().map(|pair| [0, 1].map(|at| pair.claims[at].as_str())).collect();
        assert_eq!(pairs.len(), 3);
        assert!(
            pairs.contains(&["early", "late"])
                && pairs.contains(&["early", "last"])
                && pairs.contains(&["last", "late"])
        );
        assert_eq!(found.compatible, Some(2), "\"always\" and one of the three");
        assert_eq!(found.compared, 6);
        assert_eq!(found.compatible_beyond_chance, Some(4), "two settings each are too few to exclude chance");
    }

    /// The same verdicts twelve times over: two claims exclude each other beyond chance, also among many that do not.
    #[test]
    fn pairs_are_corrected_for_their_number() {
        let many = |letters: &str| letters.repeat(12);
        let [early, late, always] = ["+-", "-+", "++"].map(many);
        let others: Vec<String> = (0..30).map(|index| format!("always-{index}")).collect();
        let mut verdicts = vec![("early", &*early, Verdict::Holds), ("late", &*late, Verdict::Fails)];
        verdicts.extend(others.iter().map(|name| (name.as_str(), &*always, Verdict::Holds)));
        let found = compared(&verdicts).expect("a survey of all claims");
        let [pair] = found.pairs.as_slice() else { panic!("{:?}", found.pairs) };
        assert_eq!(found.compared, 32 * 31 / 2);
        assert!((pair.corrected - pair.chance * found.compared as f64).abs() < 1e-12, "the first of Holm's");
        assert!(pair.is_unlikely(), "{pair:?}");
        assert_eq!((found.compatible, found.compatible_beyond_chance), (Some(31), Some(31)));
    }

    /// Each experiment has the best setting for its own claims, which no setting is for all.
    #[test]
    fn experiments_are_counted_apart() {
        use Verdict::{Fails, Holds};
        let verdicts = [
            ("a", "fig", "+--", Fails),
            ("b", "fig", "+--", Fails),
            ("c", "fig", "-+-", Holds),
            ("d", "table", "-+-", Fails),
            ("e", "table", "---", Holds),
            ("f", "table", "---", Fails),
        ];
        let found = compared_in(&verdicts).expect("a survey of all claims");
        let part = |experiment: &str, nowhere, most, judged| Part {
            experiment: experiment.to_owned(),
            claims: 3,
            nowhere,
            most,
            judged,
        };
        assert_eq!(found.parts, [part("fig", 0, 2, 1), part("table", 1, 1, 1)]);
        assert_eq!((found.apart(), found.most, found.judged), (3, 2, 2));
    }

    /// A pair that holds where the claims are judged is not listed, although no setting of the survey has both.
    #[test]
    fn the_setting_of_the_page_counts() {
        let found = compared(&[("a", "+-", Verdict::Holds), ("b", "-+", Verdict::Holds)]).expect("a survey");
        assert_eq!((found.pairs.len(), found.compatible, found.most, found.judged), (0, Some(2), 1, 2));
        assert!(!found.falls_short());
    }

    #[test]
    fn a_survey_without_one_of_the_claims_says_nothing() {
        let mut verdicts = vec![("a", "+-", Verdict::Holds), ("b", "-", Verdict::Fails)];
        assert_eq!(compared(&verdicts), None, "a verdict is missing");
        verdicts[1].1 = "--";
        assert!(compared(&verdicts).is_some());
    }

    #[test]
    fn chance_is_that_of_random_settings() {
        // Of 4 settings, 2 drawn miss 2 given ones in 1 of 6 ways; 3 drawn cannot.
        assert!((apart_by_chance(4, 2, 2) - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(apart_by_chance(4, 2, 3), 0.0);
        let missed =
            compared(&[("a", "----------------------------", Verdict::Fails)]).expect("a survey").share_missed();
        assert!(
            (missed - 0.1015).abs() < 1e-3,
            "28 settings miss a tenth of the ranges once in twenty times: {missed}"
        );
    }

    /// The largest set without an edge, against every subset of some graphs.
    #[test]
    fn the_largest_compatible_set_is_the_largest() {
        let mut rng = holdover_base::Rng::new(5);
        for _ in 0..40 {
            let mut graph = vec![0_u128; 10];
            for a in 0..10 {
                for b in 0..a {
                    if rng.below(3) == 0 {
                        graph[a] |= 1 << b;
                        graph[b] |= 1 << a;
                    }
                }
            }
            let is_free = |set: &u128| (0..10).all(|member| (set >> member) & 1 == 0 || graph[member] & set == 0);
            let largest = (0..1_u128 << 10).filter(is_free).map(u128::count_ones).max();
            let mut steps = STEPS;
            assert_eq!(independent(&graph, (1 << 10) - 1, &mut steps).map(|size| size as u32), largest);
        }
        assert_eq!(independent(&[0, 0], 3, &mut 0), None, "out of steps");
    }
}
