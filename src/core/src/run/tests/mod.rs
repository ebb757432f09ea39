//! Tests of the run: a small world around it in which an adversary chooses every next step, and what runs may cost.

mod checks;
mod steps;
mod world;

mod cost_bounds;
mod exhaustive;
mod random_walks;
