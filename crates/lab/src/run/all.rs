//! All runs of a scenario: its variants in the simulator, on kernels, or both.

use std::sync::atomic::{AtomicBool, AtomicU32};

use holdover_report::{Record, RecorderOptions, ResultsDir, VariantSummary};
use holdover_sim::WorldConfig;

use super::error::RunError;
use super::kernels::{self, Kernels};
use super::simulate::{self, Equip, simulate};

/// The runs to make.
pub struct Runs<'a> {
    /// The names of the variants.
    pub names: &'a [&'a str],
    /// Their worlds.
    pub worlds: &'a [WorldConfig],
    /// Whether they run in the simulator.
    pub simulate: bool,
    /// Whether and how they run on kernels.
    pub kernels: Option<&'a Kernels>,
    /// The recorder's options.
    pub options: RecorderOptions,
    /// The number of concurrent runs.
    pub jobs: usize,
    /// Additions to the simulator's worlds that descriptions cannot express.
    pub equip: &'a Equip<'a>,
}

/// The results: variants in the order of the scenario, the kernel's after the simulator's.
#[derive(Default)]
pub struct Done {
    /// The summary of each variant.
    pub variants: Vec<VariantSummary>,
    /// Their worlds.
    pub worlds: Vec<WorldConfig>,
    /// Their records.
    pub records: Vec<Record>,
}

impl Runs<'_> {
    /// Runs everything into `results`, first in the simulator, then on kernels. `stop` ends it early when true. `watch` is called ten times
    /// a second, by the calling thread, with the progress of each run in parts of [`simulate::WHOLE`].
    ///
    /// # Errors
    ///
    /// The first error of a variant, or an interruption. Files already written stay.
    pub fn run(
        &self,
        results: &ResultsDir,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&[AtomicU32]),
    ) -> Result<Done, RunError> {
        let simulated = if self.simulate { self.names } else { &[] };
        let on_kernels = self.kernels.map(|kernels| kernels.names(self.names)).unwrap_or_default();
        let all = simulated.iter().copied().chain(on_kernels.iter().map(String::as_str));
        let directories = ResultsDir::variant_directories(all);
        let (of_simulator, of_kernels) = directories.split_at(simulated.len());
        let plan = simulate::Plan {
            names: simulated,
            worlds: &self.worlds[..simulated.len()],
            directories: of_simulator,
            results,
            options: self.options.clone(),
        };
        let runs = simulated.len() + self.kernels.map_or(0, Kernels::runs);
        let parts: Vec<AtomicU32> = (0..runs).map(|_| AtomicU32::new(0)).collect();
        let (parts_simulated, parts_on_kernels) = parts.split_at(simulated.len());
        let records = simulate(&plan, self.jobs, self.equip, stop, parts_simulated, || watch(&parts))?;
        let (summaries, kernel_records) = match self.kernels {
            None => (Vec::new(), Vec::new()),
            Some(kernels) => {
                let plan = kernels::Plan {
                    kernels,
                    names: self.names,
                    worlds: self.worlds,
                    directories: of_kernels,
                    results,
                    options: self.options.clone(),
                    jobs: self.jobs,
                };
                kernels::all(&plan, stop, parts_on_kernels, || watch(&parts))?
            }
        };
        let mut done = Done::default();
        let mut simulated = simulated.iter().zip(of_simulator).zip(records);
        let on_kernels = self.kernels.map_or(&[][..], Kernels::variants);
        let mut real = on_kernels.iter().zip(summaries).zip(kernel_records).peekable();
        for (index, world) in self.worlds.iter().enumerate() {
            if let Some(((name, directory), record)) = simulated.next() {
                done.push(VariantSummary::new(name, directory, &record), world, record);
            }
            if let Some(((_, summary), record)) = real.next_if(|((variant, _), _)| **variant == index) {
                done.push(summary, world, record);
            }
        }
        Ok(done)
    }
}

impl Done {
    fn push(&mut self, summary: VariantSummary, world: &WorldConfig, record: Record) {
        self.variants.push(summary);
        self.worlds.push(world.clone());
        self.records.push(record);
    }
}
