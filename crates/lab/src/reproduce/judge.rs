//! Verdicts on claims.

use serde::Serialize;

use super::catalogue::{Catalogue, Claim, Explains};
use super::script::Scripts;
use super::survey::{Over, Surveyed};

/// A claim with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its name in the catalogue.
    pub id: String,
    /// The experiment concerned.
    pub experiment: String,
    /// The claim.
    pub text: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether it holds in the ranges as printed; `None` if its check does not widen any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// The finding, or the reason for having none.
    pub found: String,
    /// The part of the claim not covered by the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_part: Option<String>,
    /// The name of the known cause of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// A remark for any verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// An explanation of this verdict.
    pub explanation: Option<String>,
    /// The verdicts over the open inputs, if a survey was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_open: Option<Surveyed>,
}

/// The verdict on a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds in the reproduction.
    Holds,
    /// The claim fails.
    Fails,
    /// The claim cannot be checked by a reproduction.
    NotCheckable,
    /// The check itself fails with an error.
    Broken,
}

impl Verdict {
    /// The verdict in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotCheckable => "not checkable",
            Self::Broken => "check broken",
        }
    }
}

/// Claims by verdict.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// Claims that hold.
    pub holds: usize,
    /// Claims that fail.
    pub fails: usize,
    /// Claims not checkable by a reproduction.
    pub not_checkable: usize,
    /// Claims whose check fails with an error.
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

/// Judges the claims of a paper about the `chosen` experiments.
pub fn claims(catalogue: &Catalogue, chosen: &[&str], scripts: &Scripts) -> Vec<Judged> {
    let of_chosen = |claim: &&Claim| chosen.contains(&claim.experiment.as_str());
    catalogue.claims.iter().filter(of_chosen).map(|claim| judge(catalogue, claim, scripts)).collect()
}

fn judge(catalogue: &Catalogue, claim: &Claim, scripts: &Scripts) -> Judged {
    let scenario = catalogue.experiment(&claim.experiment).and_then(|experiment| experiment.scenario.as_deref());
    let (verdict, strict, found) = match (&claim.check, &claim.not_checkable) {
        (Some(check), _) => match scripts.check(check, scenario) {
            Ok(finding) if finding.holds => (Verdict::Holds, finding.strict, finding.found),
            Ok(finding) => (Verdict::Fails, finding.strict, finding.found),
            Err(error) => (Verdict::Broken, None, error.to_string()),
        },
        (None, reason) => (Verdict::NotCheckable, None, reason.clone().unwrap_or_default()),
    };
    let is_explained = match claim.explains {
        Explains::Fails => verdict != Verdict::Holds,
        Explains::Holds => verdict == Verdict::Holds,
    };
    Judged {
        id: claim.id.clone(),
        experiment: claim.experiment.clone(),
        text: claim.text.clone(),
        verdict,
        strict,
        found,
        in_part: claim.in_part.clone(),
        note: claim.note.clone(),
        cause: claim.cause.clone().filter(|_| verdict == Verdict::Fails),
        explanation: claim.explanation.clone().filter(|_| is_explained),
        over_open: catalogue.survey.as_ref().and_then(|survey| survey.of(&claim.id, &catalogue.inputs)),
    }
}

impl Judged {
    /// Whether it holds, and would fail in the ranges as printed.
    pub fn holds_widened_only(&self) -> bool {
        self.verdict == Verdict::Holds && self.strict == Some(false)
    }

    /// The verdict with its restrictions: `holds in part`, `holds at the fitted setting only`.
    pub fn verdict_in_words(&self) -> String {
        let mut words = self.verdict.name().to_owned();
        if self.in_part.is_some() {
            words.push_str(" in part");
        }
        let nowhere_else = self.over_open.as_ref().is_some_and(|surveyed| surveyed.verdict == Over::None);
        if self.verdict == Verdict::Holds && nowhere_else {
            words.push_str(", at the fitted setting only");
        }
        if self.holds_widened_only() {
            words.push_str("; strictly: fails");
        }
        words
    }
}
