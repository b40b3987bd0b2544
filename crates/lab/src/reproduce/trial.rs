//! Runs a paper's scenarios at several settings in turn; settings with the same changes to a scenario share its runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::results::Results;
use super::setting::{Setting, fingerprint};
use super::work::{Running, Work, WorkError};
use crate::sweep::engine::{self, Outcome};
use crate::sweep::{Ledger, Progress, SweepDir};

/// Runs of a paper's scenarios at many settings, stored in a directory so that they can be continued.
pub struct Trials<'a> {
    work: &'a Work,
    directory: PathBuf,
    /// Runs of each variant at each point.
    runs: u32,
    running: &'a Running<'a>,
    done: BTreeMap<(String, String), Results>,
}

impl<'a> Trials<'a> {
    /// Trials of `work` in `directory`, with `runs` runs per variant and point.
    pub const fn new(work: &'a Work, directory: PathBuf, runs: u32, running: &'a Running<'a>) -> Self {
        Self { work, directory, runs, running, done: BTreeMap::new() }
    }

    /// The results of the scenarios `names` at a setting, with the paper's unions; `None` if interrupted. `title` labels the progress.
    ///
    /// # Errors
    ///
    /// If the setting makes a scenario invalid, or results cannot be stored.
    pub fn at(
        &mut self,
        setting: &Setting,
        names: &[String],
        title: &str,
    ) -> Result<Option<BTreeMap<String, Results>>, WorkError> {
        let mut all = BTreeMap::new();
        for name in names {
            let overrides = setting.overrides(&self.work.catalogue.inputs, name);
            let key = (name.clone(), fingerprint(&overrides));
            if !self.done.contains_key(&key) {
                let Some(results) = self.run(&key, setting, title)? else { return Ok(None) };
                self.done.insert(key.clone(), results);
            }
            all.insert(name.clone(), self.done[&key].clone());
        }
        self.work.unite(&mut all);
        Ok(Some(all))
    }

    /// Makes the runs that the journal lacks.
    fn run(&self, key: &(String, String), setting: &Setting, title: &str) -> Result<Option<Results>, WorkError> {
        let (name, changes) = key;
        let plan = self.work.plan_at(name, setting, Some(self.runs))?;
        let path = self.directory.join(format!("{name}-{changes}-{}", plan.stop.min));
        std::fs::create_dir_all(&self.directory)
            .map_err(|error| WorkError::Write { path: self.directory.clone(), error })?;
        let directory = SweepDir::at(&path, false)?;
        let ledger = Ledger::without_table(&plan, &directory)?;
        directory.write_scenario(&plan)?;
        let title = format!("{}, {title}, {name}", self.work.catalogue.name);
        (self.running.watch)(&title, Some(ledger.progress()));
        let watch = |progress: Progress| (self.running.watch)(&title, Some(progress));
        let outcome = engine::run(&plan, ledger, self.running.jobs, self.running.stop, &watch);
        (self.running.watch)(&title, None);
        Ok(match outcome? {
            Outcome::Complete(runs) => Some(Results::new(&plan, &runs)?),
            Outcome::Interrupted(_) => None,
        })
    }
}
