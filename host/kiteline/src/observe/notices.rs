//! The engine's notices in words.

use kiteline_engine::{effect::Notice, store::Why};

use super::log::{Level, Line};

/// The line for a notice; none for what is only counted.
pub(super) fn line(notice: &Notice) -> Option<Line> {
    use Level::{Debug, Error, Info, Warn};
    let line = match notice {
        Notice::RunOpened(run, None) => Line::new(Info, "checkpoint.run-opened", "run opened").with("run", run.0),
        Notice::RunOpened(run, Some(abandoned)) => {
            let text = "run opened; all members of the last one had vanished";
            Line::new(Warn, "checkpoint.run-opened", text).with("run", run.0).with("abandoned_run", abandoned.0)
        }
        Notice::RunJoined(run) => Line::new(Info, "checkpoint.run-joined", "run joined").with("run", run.0),
        Notice::RunChanged(run) => {
            Line::new(Warn, "checkpoint.run-changed", "the run was changed, claiming again").with("run", run.0)
        }
        Notice::RunLeft(run, closed) => {
            let text = if *closed { "run closed" } else { "run left to the other members" };
            Line::new(Info, "checkpoint.run-left", text).with("run", run.0)
        }
        Notice::Claimed(tp, generation, next_offset, why) => {
            Line::new(Info, "checkpoint.claimed", format!("partition claimed, {}", origin(*why)))
                .with("partition", tp)
                .with("next_offset", next_offset)
                .with("generation", generation.0)
        }
        Notice::WaitsForOwner(tp, owner) => {
            Line::new(Info, "checkpoint.waits-for-owner", "waiting for the former owner to release or vanish")
                .with("partition", tp)
                .with("owner", owner)
        }
        Notice::TakenOver(tp, owner) => {
            Line::new(Warn, "checkpoint.taken-over", "taken over by force: the former owner did not release in time")
                .with("partition", tp)
                .with("owner", owner)
        }
        Notice::Fenced(tp) => {
            let text = "another member owns the partition now; its work in flight here is dropped";
            Line::new(Warn, "checkpoint.fenced", text).with("partition", tp)
        }
        Notice::Released(tp, next_offset) => Line::new(Info, "checkpoint.released", "partition given back")
            .with("partition", tp)
            .with("next_offset", next_offset),
        Notice::Held => Line::new(
            Error,
            "checkpoint.held",
            "no answer from the checkpoint store for two thirds of the session: no new writes to sinks",
        ),
        Notice::Resumed => Line::new(Info, "checkpoint.resumed", "the checkpoint store answers again"),
        Notice::Rewound(tp, from, why) => {
            Line::new(Warn, "source.rewound", "a batch did not go through; reading again from the low-water mark")
                .with("partition", tp)
                .with("from", from)
                .with("reason", why)
        }
        Notice::PositionLost { partition, wanted, log, recreated, resumed_at } => {
            let what = if *recreated { "the topic was made anew" } else { "the log does not hold the wanted offset" };
            let then = resumed_at.map_or_else(|| "stopped".into(), |at| format!("going on at {at}"));
            Line::new(Error, "source.position-lost", format!("position lost: {what}; {then}"))
                .with("partition", partition)
                .with("wanted", wanted)
                .with("log", format!("{}..{}", log.0, log.1))
        }
        Notice::Halted(tp, why) => Line::new(Error, "source.halted", "partition stands still until a person acts")
            .with("partition", tp)
            .with("reason", why),
        Notice::Stalled(tp, ms) => {
            Line::new(Error, "source.stalled", "partition makes no progress").with("partition", tp).with("for_ms", ms)
        }
        Notice::DecodeWaits(tp, what) => {
            Line::new(Warn, "decode.waits", "partition waits for a schema").with("partition", tp).with("reason", what)
        }
        Notice::Switched(tp, revision, from) => {
            Line::new(Info, "transform.switched", "partition goes on with another revision")
                .with("partition", tp)
                .with("revision", revision.0)
                .with("since", from)
        }
        Notice::SwapRefused(why) => {
            Line::new(Warn, "transform.swap-refused", "swap not made; the live revision goes on").with("reason", why)
        }
        Notice::CommitUnknown(partitions) => {
            let text = "commit refused or not answered; reading back";
            Line::new(Debug, "checkpoint.commit-unclear", text).with("partitions", partitions)
        }
        Notice::StoreFailed(why) => {
            Line::new(Error, "checkpoint.store-failed", "the checkpoint store, or what it holds, stands in the way")
                .with("reason", why)
        }
        Notice::LateCompletion => return None,
    };
    Some(line)
}

fn origin(why: Why) -> &'static str {
    match why {
        Why::First => "seen for the first time",
        Why::Commit => "going on at its checkpoint",
        Why::Reset => "moved by a reset",
        Why::Import => "imported",
        Why::Lost => "moved after a lost position",
    }
}
