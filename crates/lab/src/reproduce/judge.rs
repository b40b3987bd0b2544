//! Whether claims hold.

use serde::Serialize;

use super::catalogue::{Catalogue, Claim};
use super::script::Scripts;

/// A claim and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its name in the catalogue.
    pub id: String,
    /// The experiment that it is about.
    pub experiment: String,
    /// What the paper claims.
    pub text: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found, or why nothing was looked for.
    pub found: String,
    /// What is known about it besides.
    pub explanation: Option<String>,
}

/// What became of a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not.
    Fails,
    /// It cannot be checked by a reproduction.
    NotCheckable,
    /// Its check itself does not work.
    Broken,
}

impl Verdict {
    /// The verdict as people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotCheckable => "not checkable",
            Self::Broken => "check broken",
        }
    }
}

/// How many claims became what.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// Claims that hold.
    pub holds: usize,
    /// Claims that fail.
    pub fails: usize,
    /// Claims that no reproduction can check.
    pub not_checkable: usize,
    /// Claims whose check does not work.
    pub broken: usize,
}

impl Counts {
    /// Counts the verdicts.
    pub fn of(claims: &[Judged]) -> Self {
        let mut counts = Self::default();
        for claim in claims {
            *match claim.verdict {
                Verdict::Holds => &mut counts.holds,
                Verdict::Fails => &mut counts.fails,
                Verdict::NotCheckable => &mut counts.not_checkable,
                Verdict::Broken => &mut counts.broken,
            } += 1;
        }
        counts
    }
}

/// Judges the claims of a paper that are about one of the `chosen` experiments.
pub fn claims(catalogue: &Catalogue, chosen: &[&str], scripts: &Scripts) -> Vec<Judged> {
    let of_chosen = |claim: &&Claim| chosen.contains(&claim.experiment.as_str());
    catalogue.claims.iter().filter(of_chosen).map(|claim| judge(catalogue, claim, scripts)).collect()
}

fn judge(catalogue: &Catalogue, claim: &Claim, scripts: &Scripts) -> Judged {
    let scenario = catalogue.experiment(&claim.experiment).and_then(|experiment| experiment.scenario.as_deref());
    let (verdict, found) = match (&claim.check, &claim.not_checkable) {
        (Some(check), _) => match scripts.check(check, scenario) {
            Ok(finding) if finding.holds => (Verdict::Holds, finding.found),
            Ok(finding) => (Verdict::Fails, finding.found),
            Err(error) => (Verdict::Broken, error.to_string()),
        },
        (None, reason) => (Verdict::NotCheckable, reason.clone().unwrap_or_default()),
    };
    Judged {
        id: claim.id.clone(),
        experiment: claim.experiment.clone(),
        text: claim.text.clone(),
        verdict,
        found,
        explanation: claim.explanation.clone(),
    }
}
