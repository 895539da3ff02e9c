//! What an error that stands among a partition's records, or on the main queue, means for the partition and for the member.

use crate::kafka_calls::Code;

/// What follows from an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The end of the log, no error at all.
    End,
    /// The wanted offset is not in the log, or the log was cut behind our back.
    OutOfRange,
    /// What comes next cannot be read, however often it is tried.
    Unreadable,
    /// It may be well again; the client tries by itself.
    Passing,
    /// The member cannot go on.
    Terminal,
}

/// Reads a code. Numbers are those of `rd_kafka_resp_err_t`; positive ones are Kafka's own.
pub(super) fn fault(code: Code) -> Fault {
    match code.0 {
        -191 => Fault::End,
        // automatic reset is off; offset out of range; log truncation
        -140 | 1 | -139 => Fault::OutOfRange,
        // bad message, bad compression, not implemented (codec, format); corrupt, size, too large, batch too large; format, codec
        -199 | -198 | -170 | 2 | 4 | 10 | 18 | 43 | 76 => Fault::Unreadable,
        // fatal, fenced; topic, group, cluster authorisation; fenced and unreleased instance id
        -150 | -144 | 29 | 30 | 31 | 82 | 111 => Fault::Terminal,
        _ => Fault::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_never_moves_a_position() {
        // transport, resolve, all brokers down, authentication, time-out, unknown topic, not leader, coordinator, unknown to us
        for code in [-195, -193, -187, -169, -185, 3, 6, 15, -1, 9_999] {
            assert_eq!(fault(Code(code)), Fault::Passing, "{code}");
        }
    }

    #[test]
    fn what_ends_a_feed_or_a_member() {
        let cases = [
            (-191, Fault::End),
            (-140, Fault::OutOfRange),
            (1, Fault::OutOfRange),
            (-198, Fault::Unreadable),
            (76, Fault::Unreadable),
            (29, Fault::Terminal),
            (82, Fault::Terminal),
            (111, Fault::Terminal),
        ];
        for (code, expected) in cases {
            assert_eq!(fault(Code(code)), expected, "{code}");
        }
    }
}
