//! Programs take turns, in several rounds that each begin with another one. So no program alone
//! pays for a broker whose compiler still learns, or for what else runs on the machine.

/// What one program showed in all rounds.
pub(crate) struct Rounds<T> {
    /// The round whose figure is the middle one; the better of two middle ones.
    pub median: T,
    /// The figure of the worst round and of the best, by which the rounds are compared.
    pub worst: f64,
    pub best: f64,
}

/// Runs all programs in every round. `figure` compares the rounds of one program: less is better.
pub(crate) fn take_turns<P: Copy, T>(
    programs: &[P],
    rounds: usize,
    mut run: impl FnMut(P) -> T,
    figure: impl Fn(&T) -> f64,
) -> Vec<Rounds<T>> {
    let mut shown: Vec<Vec<T>> = programs.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        let first = round * programs.len() / rounds;
        for place in 0..programs.len() {
            let place = (first + place) % programs.len();
            shown[place].push(run(programs[place]));
        }
    }
    let of_program = |mut all: Vec<T>| {
        all.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
        let (best, worst) = (figure(&all[0]), figure(&all[all.len() - 1]));
        let median = all.swap_remove((all.len() - 1) / 2);
        Rounds { median, worst, best }
    };
    shown.into_iter().map(of_program).collect()
}
