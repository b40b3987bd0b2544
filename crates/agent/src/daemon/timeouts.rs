//! The user timeouts that the rules of `[[flow]]` set in the kernel.

use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};

use crate::config::Config;
use crate::policy::PolicyError;
use crate::status::{GivenUserTimeout, UserTimeoutStatus};
use crate::user_timeout::{Given, UserTimeoutError, UserTimeoutOptions, UserTimeouts, kernel_patience};
use holdover_host::log::with_causes;

/// The rules in force.
pub(super) struct Timeouts {
    /// `None` in a dry run, if disabled, or after a failure.
    timeouts: Option<UserTimeouts>,
    problem: Option<String>,
    /// Unknown users in the rules, as last logged.
    unknown: Vec<String>,
    is_wanted: bool,
    retry_at: Option<Instant>,
}

/// The rules cannot be applied.
#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Timeouts(#[from] UserTimeoutError),
}

/// The interval between attempts.
const RETRY: Duration = Duration::from_secs(60);

impl Timeouts {
    /// Applies the rules; does nothing in a dry run.
    pub(super) fn start(now: Instant, config: &Config, dry_run: bool) -> Self {
        let is_wanted = config.user_timeouts.enabled && !dry_run;
        let mut this = Self { timeouts: None, problem: None, unknown: Vec::new(), is_wanted, retry_at: None };
        this.put_in_force(now, config);
        this
    }

    /// Applies another configuration.
    pub(super) fn configure(&mut self, now: Instant, before: &Config, config: &Config, dry_run: bool) {
        let same_containers = before.containers == config.containers;
        if before.user_timeouts == config.user_timeouts && before.flow == config.flow && same_containers {
            return;
        }
        self.is_wanted = config.user_timeouts.enabled && !dry_run;
        let is_elsewhere = before.user_timeouts.cgroup != config.user_timeouts.cgroup || !same_containers;
        if !self.is_wanted || is_elsewhere {
            // The next programs do not reach containers any more.
            let leaves_containers = before.containers.enabled && !config.containers.enabled;
            self.give_up((!self.is_wanted || leaves_containers) && before.user_timeouts.restore_on_exit);
        }
        self.put_in_force(now, config);
    }

    /// Ends; `restore` decides whether connections get their former timeouts back.
    pub(super) fn give_up(&mut self, restore: bool) {
        let Some(timeouts) = self.timeouts.take().filter(|_| restore) else { return };
        if let Err(error) = timeouts.restore() {
            tracing::error!(error = with_causes(&error), "cannot restore user timeouts");
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.timeouts.as_ref().map(|timeouts| timeouts.as_fd())
    }

    pub(super) fn handle_ready(&mut self, now: Instant) {
        if let Some(timeouts) = &mut self.timeouts {
            timeouts.handle_ready(now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, config: &Config) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.put_in_force(now, config);
        }
        if let Some(timeouts) = &mut self.timeouts
            && timeouts.poll_timeout().is_some_and(|at| at <= now)
            && let Err(error) = timeouts.handle_timeout(now)
        {
            self.fail(now, &error);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = self.timeouts.as_ref().and_then(UserTimeouts::poll_timeout);
        timeouts.into_iter().chain(self.retry_at).min()
    }

    /// The timeout set for the connection of a socket.
    pub(super) fn given(&self, cookie: u64) -> Option<GivenUserTimeout> {
        let timeouts = self.timeouts.as_ref()?;
        let &Given { rule, timeout, is_applications, .. } = timeouts.given().get(&cookie)?;
        Some(GivenUserTimeout {
            timeout_s: timeout.map(Duration::as_secs_f64),
            rule: rule.map(|rule| timeouts.policy().rule_name(rule)),
            is_applications,
        })
    }

    /// Why connections of some containers could not be reached the last time.
    pub(super) fn containers_problem(&self) -> Option<&str> {
        self.timeouts.as_ref()?.containers_problem()
    }

    pub(super) fn status(&self) -> UserTimeoutStatus {
        let counters = self.timeouts.as_ref().and_then(|timeouts| timeouts.counters().ok()).unwrap_or_default();
        UserTimeoutStatus {
            in_force: self.timeouts.is_some(),
            problem: self.problem.clone().or_else(|| (!self.unknown.is_empty()).then(|| self.unknown.join("; "))),
            set: counters.set,
            set_open: counters.set_open,
            applications_own: counters.applications_own,
            options_sent: counters.options_sent,
            options_received: counters.options_received,
        }
    }

    fn put_in_force(&mut self, now: Instant, config: &Config) {
        self.retry_at = None;
        if !self.is_wanted {
            self.unknown.clear();
            return;
        }
        match self.try_in_force(now, config) {
            Ok(has_changed) => {
                self.problem = None;
                // They may be created later, or the user database may not answer yet.
                self.retry_at = (!self.unknown.is_empty()).then(|| now + RETRY);
                if has_changed {
                    let built_in = config.user_timeouts.built_in;
                    tracing::info!(rules = config.flow.len(), built_in, "rules in force");
                }
            }
            Err(error) => self.fail(now, &error),
        }
    }

    /// Returns whether anything has changed.
    fn try_in_force(&mut self, now: Instant, config: &Config) -> Result<bool, RulesError> {
        let policy = config.policy(kernel_patience()?)?;
        if policy.problems() != self.unknown {
            self.unknown = policy.problems().to_vec();
            for problem in &self.unknown {
                tracing::error!(problem, "a rule does not apply to an unknown user; the others do");
            }
        }
        match &mut self.timeouts {
            Some(timeouts) if self.problem.is_none() && *timeouts.policy() == policy => return Ok(false),
            Some(timeouts) => timeouts.set_policy(now, policy)?,
            None => {
                let options = UserTimeoutOptions {
                    cgroup: config.user_timeouts.cgroup.clone(),
                    containers: config.containers.enabled,
                    ..UserTimeoutOptions::default()
                };
                self.timeouts = Some(UserTimeouts::attach(now, policy, &options)?);
            }
        }
        Ok(true)
    }

    /// A failure may be temporary; the path of packets is independent of it.
    fn fail(&mut self, now: Instant, error: &dyn std::error::Error) {
        let problem = with_causes(error);
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(problem, "user timeouts; trying again");
        }
        self.problem = Some(problem);
        self.retry_at = Some(now + RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_has_no_rules_in_force() {
        let mut timeouts = Timeouts::start(Instant::ZERO, &Config::default(), true);
        assert_eq!((timeouts.poll_timeout(), timeouts.descriptor().is_none()), (None, true));
        timeouts.handle_timeout(Instant::from_secs(1000), &Config::default());
        assert_eq!((timeouts.status().in_force, timeouts.status().problem), (false, None));
    }
}
