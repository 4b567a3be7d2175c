"""Programs written from papers for the judge to judge: none imports a witness."""
