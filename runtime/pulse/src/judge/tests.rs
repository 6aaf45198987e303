use super::*;
use proptest::prelude::*;

const MS: u64 = MILLISECOND;

fn stream(role: Role, phase: Phase, count: u64) -> StreamSample {
    StreamSample { role, phase, count, thread: 7 }
}

/// A worker under a judge: time passes in looks of 10 ms.
struct Case {
    judge: Judge,
    now_ns: u64,
    sample: Sample,
}

impl Case {
    fn new(phase: Phase) -> Case {
        let streams = vec![stream(Role::Main, phase, 0)];
        let sample = Sample { beats: 0, step: Some(0), streams };
        let mut case = Case { judge: Judge::new(Limits::near()), now_ns: 5, sample };
        assert_eq!(case.look(), Verdict::Alive);
        case
    }

    fn look(&mut self) -> Verdict {
        self.judge.look(self.now_ns, &self.sample)
    }

    /// Time passes, with a beat in each look or none, and with progress or none.
    fn pass(&mut self, ms: u64, beats: bool, progress: bool) -> Verdict {
        let mut verdict = Verdict::Alive;
        for _ in 0..ms / 10 {
            self.now_ns += 10 * MS;
            self.sample.beats += u64::from(beats);
            for stream in &mut self.sample.streams {
                stream.count += u64::from(progress);
            }
            verdict = self.look();
            if matches!(verdict, Verdict::Hung(_)) {
                break;
            }
        }
        verdict
    }

    /// Steps go by, in which each gap is so long.
    fn learn(&mut self, gap_ms: u64) {
        for step in 1..4 {
            self.sample.step = Some(step);
            self.pass(gap_ms, true, false);
            self.pass(10, true, true);
        }
    }

    fn waits(&mut self, phase: Phase) {
        for stream in &mut self.sample.streams {
            (stream.phase, stream.count) = (phase, stream.count + 1);
        }
    }
}

#[track_caller]
fn hang(verdict: Verdict) -> Hang {
    match verdict {
        Verdict::Hung(hang) => hang,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_without_a_beat_is_suspect_then_frozen() {
    let mut case = Case::new(Phase::Compute);
    case.pass(1_000, true, true);
    assert_eq!(case.pass(40, false, false), Verdict::Alive);
    assert_eq!(case.pass(450, false, false), Verdict::Suspect);
    let hang = hang(case.pass(20, false, false));
    assert_eq!((hang.what, hang.phase), (What::Frozen, Phase::Compute));
    assert!(hang.to_string().contains("no sign of life for 0.5 s"), "{hang}");
}

#[test]
fn a_freeze_that_ends_is_forgiven_again_and_again() {
    let mut case = Case::new(Phase::Compute);
    case.learn(20);
    for round in 0..100 {
        assert_eq!(case.pass(450, false, false), Verdict::Suspect);
        // Awake for a moment, in which it seldom finishes anything.
        assert_eq!(case.pass(10, true, round % 20 == 0), Verdict::Alive);
    }
}

#[test]
fn a_lane_that_gets_nowhere_is_named_once_its_phase_is_known() {
    let mut case = Case::new(Phase::Compute);
    // Nothing is known of a first step that is long.
    assert_eq!(case.pass(30_000, true, false), Verdict::Alive);
    let mut case = Case::new(Phase::Compute);
    case.learn(20);
    assert_eq!(case.pass(1_900, true, false), Verdict::Alive);
    let hang = hang(case.pass(300, true, false));
    assert_eq!(hang.what, What::Stuck { role: Role::Main, thread: 7 });
    assert_eq!((hang.phase, hang.step), (Phase::Compute, Some(3)));
    assert!(hang.to_string().contains("while its process answers"), "{hang}");
}

#[test]
fn long_kernels_have_long_deadlines() {
    let mut case = Case::new(Phase::Compute);
    case.learn(1_000);
    assert_eq!(case.pass(19_000, true, false), Verdict::Alive);
    hang(case.pass(3_000, true, false));
}

#[test]
fn who_waits_is_never_accused() {
    for phase in [Phase::Idle, Phase::Waiting] {
        let mut case = Case::new(Phase::Compute);
        case.learn(20);
        case.waits(phase);
        assert_eq!(case.pass(3_600_000, true, false), Verdict::Alive);
        // Time spent waiting is not held against the work that follows.
        case.waits(Phase::Compute);
        assert_eq!(case.pass(1_900, true, false), Verdict::Alive);
    }
}

#[test]
fn a_long_save_is_no_hang_while_training_goes_on() {
    let mut case = Case::new(Phase::Compute);
    case.learn(20);
    case.sample.streams.push(stream(Role::Saver, Phase::Save, 0));
    for _ in 0..500 {
        assert_eq!(case.pass(1_000, true, true), Verdict::Alive);
    }
}

#[test]
fn another_thread_in_the_same_role_begins_anew() {
    let mut case = Case::new(Phase::Compute);
    case.learn(20);
    case.pass(1_900, true, false);
    case.sample.streams[0].thread = 8;
    assert_eq!(case.pass(1_900, true, false), Verdict::Alive);
}

fn any_phase() -> impl Strategy<Value = Phase> {
    (0u8..9).prop_map(Phase::of)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever a worker is at: while it beats in time and gets on in time, it is not hung.
    #[test]
    fn who_gets_on_is_alive(
        looks in proptest::collection::vec((0u64..490, any_phase(), any::<bool>()), 1..80),
    ) {
        let mut case = Case::new(Phase::Compute);
        let mut idle_ms = 0;
        for (ms, phase, beats) in looks {
            case.now_ns += ms * MS;
            idle_ms += ms;
            if beats || idle_ms >= 400 {
                case.sample.beats += 1;
                case.waits(phase);
                idle_ms = 0;
            }
            let verdict = case.look();
            prop_assert!(!matches!(verdict, Verdict::Hung(_)) || idle_ms >= 490, "{verdict:?}");
        }
    }

    /// However the looks fall, one that stops is found, and not before its time.
    #[test]
    fn who_freezes_is_found(looks in proptest::collection::vec(1u64..200, 1..200)) {
        let mut case = Case::new(Phase::Data);
        let mut stale_ms = 0;
        for ms in looks {
            case.now_ns += ms * MS;
            stale_ms += ms;
            let hung = matches!(case.look(), Verdict::Hung(_));
            prop_assert_eq!(hung, stale_ms >= 500);
        }
    }

    /// A stuck thread is found among others that get on, after its deadline and no sooner.
    #[test]
    fn who_is_stuck_is_found(others in 0usize..6, gap_ms in 1u64..50, look_ms in 1u64..40) {
        let mut case = Case::new(Phase::Update);
        case.learn(gap_ms);
        let deadline = case.judge.deadline_ns(Phase::Update);
        for n in 0..others {
            let role = Role::Lane(n as u16 + 1);
            case.sample.streams.push(stream(role, Phase::Compute, 0));
        }
        let begun = case.now_ns;
        loop {
            case.now_ns += look_ms * MS;
            case.sample.beats += 1;
            for stream in case.sample.streams.iter_mut().skip(1) {
                stream.count += 1;
            }
            if let Verdict::Hung(hang) = case.look() {
                prop_assert_eq!(hang.what, What::Stuck { role: Role::Main, thread: 7 });
                prop_assert!(case.now_ns - begun >= deadline);
                prop_assert!(case.now_ns - begun <= deadline + 3 * look_ms * MS + 20 * MS);
                break;
            }
            prop_assert!(case.now_ns - begun < 10 * SECOND);
        }
    }
}
