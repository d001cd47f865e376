"""From episodes to what the learner takes: played, made into rows, credited."""
