"""What is measured of jobs, and what is predicted from it."""
