//! Makes a survey.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::judge::{self, Verdict};
use super::open::Open;
use super::sample::{Sampling, latin_hypercube};
use super::script::Scripts;
use super::setting::Setting;
use super::survey::{Survey, combinations, described};
use super::trial::Trials;
use super::work::{Running, Work, WorkError};

impl Survey {
    /// Judges the claims of `work`'s experiments over a sample of settings; `None` if interrupted. Results in
    /// `directory` are reused. If the inputs have no more combinations of values than the sample has settings, each is run once.
    ///
    /// # Errors
    ///
    /// If a setting makes a scenario invalid, or results cannot be stored.
    pub fn make(
        work: &Work,
        directory: PathBuf,
        sampling: Sampling,
        running: &Running<'_>,
        command: String,
    ) -> Result<Option<Self>, WorkError> {
        let inputs = &work.catalogue.inputs;
        let settings = settings(inputs, sampling);
        let names = work.scenario_names();
        let mut trials = Trials::new(work, directory, sampling.runs, running);
        let mut verdicts: BTreeMap<String, String> = BTreeMap::new();
        for (index, setting) in settings.iter().enumerate() {
            let title = format!("setting {} of {}", index + 1, settings.len());
            let Some(results) = trials.at(setting, &names, &title)? else { return Ok(None) };
            let scripts = Scripts::new(&results);
            for claim in judge::claims(&work.catalogue, &work.ids(), &scripts) {
                let letter = match claim.verdict {
                    Verdict::Holds => '+',
                    Verdict::Fails => '-',
                    Verdict::Broken => '?',
                    Verdict::NotCheckable => continue,
                };
                verdicts.entry(claim.id).or_default().push(letter);
            }
        }
        let Sampling { runs, seed, .. } = sampling;
        let samples = u32::try_from(settings.len()).unwrap_or(u32::MAX);
        Ok(Some(Self { command, samples, runs, seed, inputs: described(inputs), settings, verdicts }))
    }
}

/// The settings of a sample: every combination of values if there are no more than `samples`, else a Latin hypercube.
fn settings(inputs: &[Open], sampling: Sampling) -> Vec<Setting> {
    let samples = sampling.samples as usize;
    combinations(inputs, samples).unwrap_or_else(|| {
        let places = latin_hypercube(inputs.len(), samples, sampling.seed);
        places.iter().map(|places| Setting::at(inputs, places)).collect()
    })
}
