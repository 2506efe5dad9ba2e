"""Prices that only other processes can measure, taken after the job has ended and kept in its recording."""
