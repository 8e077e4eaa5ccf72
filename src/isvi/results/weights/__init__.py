"""The posterior against q, draw by draw: log joints in float64, importance weights, their smoothing, and where else
to look. What is needed to weigh draws comes in; verdicts on them do not."""
