"""What sensors, jobs, the command line and the API share; knows neither Dagster nor a terminal."""
